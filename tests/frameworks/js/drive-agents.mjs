// OpenAI Agents JS: OpenInference's processor over its tracing, or the model calls alone as OpenInference's instrumentation of openai sees them.
import * as agents from "@openai/agents";
import OpenAI from "openai";
import { driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { startOtel } from "./lib/otel.mjs";

const { flush: send, provider } = startOtel();
if (VARIANT.has("oi")) {
  const { OpenAIAgentsInstrumentation } = await import("@arizeai/openinference-instrumentation-openai-agents");
  new OpenAIAgentsInstrumentation({ tracerProvider: provider }).manuallyInstrument(agents);
} else {
  agents.setTracingDisabled(true);
}
agents.setDefaultOpenAIClient(new OpenAI({ baseURL: OPENAI_URL, apiKey: "key" }));
agents.setOpenAIAPI(VARIANT.has("chat") ? "chat_completions" : "responses");
const tools = makeTools(({ name, description, parameters, run }) =>
  agents.tool({ name, description, parameters, strict: true, execute: run, ...(VARIANT.has("quiet") ? {} : { errorFunction: (_, problem) => `Error: ${problem.message ?? problem}` }) }),
);
const agent = new agents.Agent({ name: "Shop agent", instructions: SYSTEM, model: "gpt-4o-mini", tools });

async function converse({ name, inputs, streamed }) {
  let history = [];
  await agents.withTrace("shop support", async () => {
    for (const input of inputs) {
      const result = await agents.run(agent, [...history, { role: "user", content: input }], { stream: streamed });
      if (streamed) await result.completed;
      history = result.history;
    }
  });
  if (VARIANT.has("messages")) await keepMessages("openai-agents-js", name, JSON.parse(JSON.stringify(history)));
}

async function flush() {
  if (VARIANT.has("oi")) await agents.getGlobalTraceProvider().forceFlush();
  await send();
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
