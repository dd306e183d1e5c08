// The openai SDK in a hand-written loop, with the instrumentations that patch it: chat completions or Responses.
import { createRequire } from "node:module";
import { act, driveAll, keepMessages, OPENAI_URL, SPECS, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { SERVICE, startOtel, traceExporter, within } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const instrumentations = [];
let processors;
if (VARIANT.has("oi")) {
  const { OpenAIInstrumentation } = require("@arizeai/openinference-instrumentation-openai");
  const traceConfig = VARIANT.has("hidden") ? { hideInputs: true, hideOutputs: true } : undefined;
  instrumentations.push(new OpenAIInstrumentation({ traceConfig }));
} else if (VARIANT.has("traceloop")) {
  const { OpenAIInstrumentation } = require("@traceloop/instrumentation-openai");
  instrumentations.push(new OpenAIInstrumentation({ traceContent: !VARIANT.has("hidden"), enrichTokens: false }));
} else if (VARIANT.has("genai")) {
  const { OpenAIInstrumentation } = require("@opentelemetry/instrumentation-openai");
  instrumentations.push(new OpenAIInstrumentation({ captureMessageContent: !VARIANT.has("hidden") }));
} else if (VARIANT.has("langfuse")) {
  const { LangfuseSpanProcessor } = require("@langfuse/otel");
  processors = [new LangfuseSpanProcessor({ exporter: traceExporter(), publicKey: "pk", secretKey: "sk", baseUrl: "http://127.0.0.1:9" })];
}
if (VARIANT.has("langsmith")) {
  const { LangSmithOTLPSpanProcessor } = require("langsmith/experimental/otel/processor");
  processors = [new LangSmithOTLPSpanProcessor(traceExporter())];
}
let flush, provider;
if (VARIANT.has("workflow")) {
  const traceloop = require("@traceloop/node-server-sdk");
  traceloop.initialize({ appName: SERVICE, exporter: traceExporter(), disableBatch: false, silenceInitializationMessage: true, traceloopSyncEnabled: false, traceContent: !VARIANT.has("hidden") });
  flush = () => traceloop.forceFlush();
} else {
  ({ flush, provider } = startOtel({ instrumentations, processors, withLogs: VARIANT.has("genai") }));
}
const OpenAI = require("openai").default ?? require("openai");
let client = new OpenAI({ baseURL: OPENAI_URL, apiKey: "key" });
let tool = (name, args) => act(name, args);
let agent = (input, work) => work();
let root = (work) => within("support_request", work);
if (VARIANT.has("langfuse")) {
  const { observeOpenAI } = require("@langfuse/openai");
  const { startActiveObservation } = require("@langfuse/tracing");
  client = observeOpenAI(client);
  const observe = (name, kind, input, work) =>
    startActiveObservation(
      name,
      async (one) => {
        one.update({ input });
        try {
          const output = await work();
          one.update({ output });
          return output;
        } catch (problem) {
          one.update({ level: "ERROR", statusMessage: problem.message });
          throw problem;
        }
      },
      { asType: kind },
    );
  tool = (name, args) => observe(name, "tool", args, () => act(name, args));
  agent = (input, work) => observe("shop_agent", "agent", input, work);
  root = (work) => startActiveObservation("conversation", work);
}

if (VARIANT.has("langsmith")) {
  const { initializeOTEL } = require("langsmith/experimental/otel/setup");
  initializeOTEL({ globalTracerProvider: provider, skipGlobalContextManagerSetup: true });
  const { Client } = require("langsmith");
  const { traceable } = require("langsmith/traceable");
  const { wrapOpenAI } = require("langsmith/wrappers");
  const langsmith = new Client();
  client = wrapOpenAI(client, { client: langsmith });
  tool = (name, args) => traceable((given) => act(name, given), { name, run_type: "tool", client: langsmith })(args);
  agent = (input, work) => traceable(async (_) => work(), { name: "shop_agent", run_type: "chain", client: langsmith })(input);
  root = (work) => traceable(async () => work(), { name: "conversation", run_type: "chain", client: langsmith })();
  const send = flush;
  flush = async () => {
    await langsmith.awaitPendingTraceBatches();
    await send();
  };
}

if (VARIANT.has("workflow")) {
  const traceloop = require("@traceloop/node-server-sdk");
  tool = (name, args) => traceloop.withTool({ name }, (given) => act(name, given), args);
  agent = (input, work) => traceloop.withAgent({ name: "shop_agent" }, (_) => work(), input);
  root = (work) => traceloop.withWorkflow({ name: "support_request" }, () => work());
}

async function runTool(name, text) {
  try {
    return JSON.stringify(await tool(name, JSON.parse(text)));
  } catch (problem) {
    return `Error: ${problem.message}`;
  }
}

async function askChat(messages, streamed) {
  const request = { model: "gpt-4o-mini", messages, tools: SPECS.map((one) => ({ type: "function", function: one })) };
  if (!streamed) return (await client.chat.completions.create(request)).choices[0].message;
  const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
  const whole = { role: "assistant", content: null };
  for await (const chunk of stream) {
    const delta = chunk.choices[0]?.delta ?? {};
    if (delta.content) whole.content = (whole.content ?? "") + delta.content;
    for (const part of delta.tool_calls ?? []) {
      whole.tool_calls ??= [];
      const call = (whole.tool_calls[part.index] ??= { id: part.id, type: "function", function: { name: part.function.name, arguments: "" } });
      call.function.arguments += part.function.arguments ?? "";
    }
  }
  return whole;
}

async function chat(messages, streamed) {
  for (;;) {
    const message = await askChat(messages, streamed);
    messages.push(message);
    if (!message.tool_calls?.length) return message.content;
    const results = await Promise.all(message.tool_calls.map((call) => runTool(call.function.name, call.function.arguments)));
    message.tool_calls.forEach((call, index) => messages.push({ role: "tool", tool_call_id: call.id, content: results[index] }));
  }
}

async function respond(items, streamed) {
  for (;;) {
    const request = { model: "gpt-4o-mini", instructions: SYSTEM, input: items, tools: SPECS.map((one) => ({ type: "function", strict: true, ...one })) };
    let response;
    if (streamed) {
      for await (const event of await client.responses.create({ ...request, stream: true })) if (event.type === "response.completed") response = event.response;
    } else {
      response = await client.responses.create(request);
    }
    items.push(...response.output);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (!calls.length) return response.output[0].content[0].text;
    const results = await Promise.all(calls.map((call) => runTool(call.name, call.arguments)));
    calls.forEach((call, index) => items.push({ type: "function_call_output", call_id: call.call_id, output: results[index] }));
  }
}

async function converse({ name, inputs, streamed }) {
  const responses = VARIANT.has("responses");
  const history = responses ? [] : [{ role: "system", content: SYSTEM }];
  const talk = async () => {
    for (const input of inputs) {
      history.push({ role: "user", content: input });
      await agent(input, () => (responses ? respond(history, streamed) : chat(history, streamed)));
    }
  };
  await ((VARIANT.has("langfuse") || VARIANT.has("langsmith")) && inputs.length === 1 ? talk() : root(talk));
  if (VARIANT.has("messages")) await keepMessages(responses ? "openai-responses-js" : "openai-chat-js", name, history);
}

await driveAll({ converse, flush });
