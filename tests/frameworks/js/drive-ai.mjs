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
  ai.registerTelemetry(VARIANT.has("legacy") ? new LegacyOpenTelemetry() : new OpenTelemetry());
  telemetry = { telemetry: { isEnabled: true, functionId: "shop_agent", ...hidden } };
}

const openai = createOpenAI({ baseURL: OPENAI_URL, apiKey: "key", ...(MAJOR === 4 ? { compatibility: "strict" } : {}) });
const model = VARIANT.has("responses") ? openai.responses("gpt-4o-mini") : openai.chat("gpt-4o-mini");
const schemaKey = MAJOR === 4 ? "parameters" : "inputSchema";
const tools = Object.fromEntries(
  makeTools(({ name, description, parameters, run }) => [name, ai.tool({ description, [schemaKey]: ai.jsonSchema(parameters), execute: run })]),
);
const limit = MAJOR === 4 ? { maxSteps: 8 } : { stopWhen: MAJOR >= 7 && ai.isStepCount ? ai.isStepCount(8) : ai.stepCountIs(8) };

async function answer(messages, streamed) {
  const request = { model, tools, messages, ...(MAJOR >= 7 ? { instructions: SYSTEM } : { system: SYSTEM }), ...limit, ...telemetry };
  if (!streamed) {
    const result = await ai.generateText(request);
    return (await result.response).messages;
  }
  const result = ai.streamText(request);
  if (result.consumeStream) await result.consumeStream();
  return (await result.response).messages;
}

async function chatAsUi(name, inputs) {
  if (MAJOR === 4) return;
  const ui = [];
  for (const [index, input] of inputs.entries()) {
    ui.push({ id: `u${index}`, role: "user", parts: [{ type: "text", text: input }] });
    const messages = await ai.convertToModelMessages(ui);
    const request = { model, tools, messages, ...(MAJOR >= 7 ? { instructions: SYSTEM } : { system: SYSTEM }), ...limit };
    const result = ai.streamText(request);
    const options = { originalMessages: [...ui], generateMessageId: () => `a${index}` };
    const stream = MAJOR >= 7 && ai.toUIMessageStream ? ai.toUIMessageStream({ stream: result.stream, ...options }) : result.toUIMessageStream(options);
    let last;
    for await (const message of ai.readUIMessageStream({ stream })) last = message;
    ui.push(last);
  }
  await keepMessages(`ai-sdk-${MAJOR}-ui`, name, ui);
  await keepMessages(`ai-sdk-${MAJOR}-converted`, name, await ai.convertToModelMessages(ui));
}

async function converse({ name, inputs, streamed }) {
  const history = [];
  if (VARIANT.has("messages")) {
    await chatAsUi(name, inputs);
  }
  await around(inputs, async () => {
    for (const input of inputs) {
      history.push({ role: "user", content: input });
      history.push(...(await answer(history, streamed)));
    }
  });
  if (VARIANT.has("messages")) await keepMessages(`ai-sdk-${MAJOR}-model`, name, history);
}

await driveAll({ converse, flush });
