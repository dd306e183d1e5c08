// LangChain.js createAgent (LangGraph.js) with callbacks of OpenInference, OpenLLMetry or Langfuse.
import { createRequire } from "node:module";
import { driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { around, startOtel, traceExporter, within } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const instrumentations = [];
let processors;
let callbacks = [];
if (VARIANT.has("langfuse")) {
  const { LangfuseSpanProcessor } = require("@langfuse/otel");
  processors = [new LangfuseSpanProcessor({ exporter: traceExporter(), publicKey: "pk", secretKey: "sk", baseUrl: "http://127.0.0.1:9" })];
}
const { flush, provider } = startOtel({ processors });
if (VARIANT.has("oi")) {
  const { LangChainInstrumentation } = require("@arizeai/openinference-instrumentation-langchain");
  const instrumentation = new LangChainInstrumentation({ tracerProvider: provider });
  instrumentation.manuallyInstrument(require("@langchain/core/callbacks/manager"));
} else if (VARIANT.has("traceloop")) {
  const { LangChainInstrumentation } = require("@traceloop/instrumentation-langchain");
  const instrumentation = new LangChainInstrumentation({ traceContent: !VARIANT.has("hidden") });
  instrumentation.setTracerProvider(provider);
  instrumentation.manuallyInstrument({ callbackManagerModule: require("@langchain/core/callbacks/manager") });
} else if (VARIANT.has("langfuse")) {
  const { CallbackHandler } = require("@langfuse/langchain");
  callbacks = [new CallbackHandler()];
}
const { createAgent, tool, createMiddleware, ToolMessage } = require("langchain");
const { ChatOpenAI } = require("@langchain/openai");
const { mapChatMessagesToStoredMessages } = require("@langchain/core/messages");

const model = new ChatOpenAI({ model: "gpt-4o-mini", apiKey: "key", configuration: { baseURL: OPENAI_URL }, streamUsage: true });
const tools = makeTools(({ name, description, parameters, run }) => tool(async (input) => JSON.stringify(await run(input)), { name, description, schema: parameters }));
// The customer gets an answer even if a tool fails; the tool itself still throws, and its span records that.
const forgiving = createMiddleware({
  name: "forgiving",
  wrapToolCall: async (request, handler) => {
    try {
      return await handler(request);
    } catch (problem) {
      return new ToolMessage({ content: `Error: ${problem.message}`, tool_call_id: request.toolCall.id, name: request.toolCall.name, status: "error" });
    }
  },
});
let agent;
if (VARIANT.has("react")) {
  const { createReactAgent, ToolNode } = require("@langchain/langgraph/prebuilt");
  agent = createReactAgent({ llm: model, tools: new ToolNode(tools, { handleToolErrors: true }), prompt: SYSTEM, name: "shop_agent" });
} else {
  agent = createAgent({ model, tools, systemPrompt: SYSTEM, name: "shop_agent", middleware: [forgiving] });
}

async function converse({ name, inputs, streamed }) {
  let messages = [];
  let state;
  // OpenLLMetry's spans hang together only under a span that is already there.
  const hold = VARIANT.has("traceloop") ? (_, work) => within("support_request", work) : VARIANT.has("apart") ? (_, work) => work() : around;
  await hold(inputs, async () => {
    for (const input of inputs) {
      const request = { messages: [...messages, { role: "user", content: input }] };
      if (streamed) {
        for await (const part of await agent.stream(request, { callbacks, streamMode: "values" })) state = part;
      } else {
        state = await agent.invoke(request, { callbacks });
      }
      messages = state.messages;
    }
  });
  if (VARIANT.has("messages")) {
    await keepMessages("langchain-js-todict", name, messages.map((one) => one.toDict()));
    await keepMessages("langchain-js-stored", name, mapChatMessagesToStoredMessages(messages));
    await keepMessages("langchain-js-json", name, JSON.parse(JSON.stringify(messages)));
    await keepMessages("langgraph-js-state", name, JSON.parse(JSON.stringify(state)));
    await keepMessages("langgraph-js-fields", name, { messages: messages.map((one) => JSON.parse(JSON.stringify({ ...one }))) });
  }
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
