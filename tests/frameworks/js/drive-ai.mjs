// Vercel AI SDK 4 to 7: generateText and streamText with the SDK's own telemetry, optionally through OpenInference's processor.
import * as ai from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { around, startOtel, traceExporter } from "./lib/otel.mjs";

const MAJOR = Number(process.env.AI_MAJOR);
let processors;
if (VARIANT.has("oi")) {
  const { OpenInferenceBatchSpanProcessor } = await import("@arizeai/openinference-vercel");
  processors = [new OpenInferenceBatchSpanProcessor({ exporter: traceExporter() })];
} else if (VARIANT.has("langfuse")) {
  const { LangfuseSpanProcessor } = await import("@langfuse/otel");
  processors = [new LangfuseSpanProcessor({ exporter: traceExporter(), publicKey: "pk", secretKey: "sk", baseUrl: "http://127.0.0.1:9" })];
} else {
  processors = [new BatchSpanProcessor(traceExporter())];
}
const { flush } = startOtel({ processors });
const hidden = VARIANT.has("hidden") ? { recordInputs: false, recordOutputs: false } : {};
let telemetry = { experimental_telemetry: { isEnabled: true, functionId: "shop_agent", ...hidden } };
if (MAJOR >= 7) {
  const { OpenTelemetry, LegacyOpenTelemetry } = await import("@ai-sdk/otel");
  if (VARIANT.has("langfuse")) {
    const { LangfuseVercelAiSdkIntegration } = await import("@langfuse/vercel-ai-sdk");
    ai.registerTelemetry(new LangfuseVercelAiSdkIntegration());
  } else {
    ai.registerTelemetry(VARIANT.has("legacy") ? new LegacyOpenTelemetry() : new OpenTelemetry());
  }
  telemetry = { telemetry: { isEnabled: true, functionId: "shop_agent", ...hidden } };
}

const openai = createOpenAI({ baseURL: OPENAI_URL, apiKey: "key", ...(MAJOR === 4 ? { compatibility: "strict" } : {}) });
const model = VARIANT.has("responses") ? openai.responses("gpt-4o-mini") : openai.chat("gpt-4o-mini");
const schemaKey = MAJOR === 4 ? "parameters" : "inputSchema";
const tools = Object.fromEntries(
  makeTools(({ name, description, parameters, run }) => {
    const make = VARIANT.has("dynamic") ? ai.dynamicTool : ai.tool;
    return [name, make({ description, [schemaKey]: ai.jsonSchema(parameters), execute: run })];
  }),
);
const limit = MAJOR === 4 ? { maxSteps: 8 } : { stopWhen: MAJOR >= 7 && ai.isStepCount ? ai.isStepCount(8) : ai.stepCountIs(8) };

const words = MAJOR >= 7 ? { instructions: SYSTEM } : { system: SYSTEM };
let agent = { generate: (request) => ai.generateText({ ...request, model, tools, ...words, ...limit, ...telemetry }), stream: (request) => ai.streamText({ ...request, model, tools, ...words, ...limit, ...telemetry }) };
if (VARIANT.has("agent")) {
  const Agent = ai.ToolLoopAgent ?? ai.Experimental_Agent;
  agent = new Agent({ id: "shop_agent", model, tools, ...(MAJOR === 5 ? words : { instructions: SYSTEM }), ...limit, ...telemetry });
}

async function answer(messages, streamed) {
  const result = await (streamed ? agent.stream({ messages }) : agent.generate({ messages }));
  if (streamed) await result.consumeStream();
  // From version 7 on, `response` has only the last step.
  return (await result.responseMessages) ?? (await result.response).messages;
}

async function chatAsUi4(name, inputs) {
  let ui = [];
  for (const [index, input] of inputs.entries()) {
    ui.push({ id: `u${index}`, role: "user", content: input, parts: [{ type: "text", text: input }] });
    const result = await ai.generateText({ model, tools, messages: ai.convertToCoreMessages(ui), ...words, ...limit });
    ui = ai.appendResponseMessages({ messages: ui, responseMessages: result.response.messages });
  }
  await keepMessages("ai-sdk-4-ui", name, JSON.parse(JSON.stringify(ui)));
  await keepMessages("ai-sdk-4-converted", name, ai.convertToCoreMessages(ui));
}

async function chatAsUi(name, inputs) {
  if (MAJOR === 4) return chatAsUi4(name, inputs);
  const ui = [];
  for (const [index, input] of inputs.entries()) {
    ui.push({ id: `u${index}`, role: "user", parts: [{ type: "text", text: input }] });
    const messages = await ai.convertToModelMessages(ui);
    const result = ai.streamText({ model, tools, messages, ...words, ...limit });
    const options = { originalMessages: [...ui], generateMessageId: () => `a${index}` };
    const stream = MAJOR >= 7 && ai.toUIMessageStream ? ai.toUIMessageStream({ stream: result.stream, ...options }) : result.toUIMessageStream(options);
    let last;
    for await (const message of ai.readUIMessageStream({ stream })) last = message;
    ui.push(last);
  }
  const kind = `ai-sdk-${MAJOR}${VARIANT.has("dynamic") ? "-dynamic" : ""}`;
  await keepMessages(`${kind}-ui`, name, ui);
  await keepMessages(`${kind}-converted`, name, await ai.convertToModelMessages(ui));
}

async function converse({ name, inputs, streamed }) {
  const history = [];
  if (VARIANT.has("messages")) {
    await chatAsUi(name, inputs);
  }
  const talk = async () => {
    for (const input of inputs) {
      history.push({ role: "user", content: input });
      history.push(...(await answer(history, streamed)));
    }
  };
  // Most programs have no span around a conversation: each turn is a trace that carries the earlier turns as history.
  await (VARIANT.has("apart") ? talk() : around(inputs, talk));
  if (VARIANT.has("messages") && !VARIANT.has("dynamic")) await keepMessages(`ai-sdk-${MAJOR}-model`, name, history);
}

await driveAll({ converse, flush });
