// Mastra 1 with its observability: the OTel exporter, the exporter for Arize (OpenInference), Langfuse's, or the bridge into OpenTelemetry.
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { DESK, driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { around, SERVICE, startOtel } from "./lib/otel.mjs";

const configuration = { serviceName: SERVICE };
let send = async () => {};
if (VARIANT.has("bridge")) {
  send = startOtel({ withLogs: true }).flush;
  const { OtelBridge } = await import("@mastra/otel-bridge");
  configuration.bridge = new OtelBridge();
} else if (VARIANT.has("arize")) {
  const { ArizeExporter } = await import("@mastra/arize");
  configuration.exporters = [new ArizeExporter({ endpoint: `${DESK}/v1/traces`, apiKey: "key", projectName: SERVICE })];
} else {
  const { OtelExporter } = await import("@mastra/otel-exporter");
  configuration.exporters = [new OtelExporter({ provider: { custom: { endpoint: `${DESK}/v1/traces`, protocol: "http/json" } }, timeout: 5000, batchSize: 1000 })];
}
const shapes = {
  lookup_order: z.object({ id: z.number() }),
  refund: z.object({ id: z.number(), amount: z.number() }),
  search_docs: z.object({ query: z.string() }),
};
const tools = Object.fromEntries(
  makeTools(({ name, description, run }) => [name, createTool({ id: name, description, inputSchema: shapes[name], execute: async (input) => run(input.context ?? input) })]),
);
const openai = createOpenAI({ baseURL: OPENAI_URL, apiKey: "key" });
const shop = new Agent({ id: "shop_agent", name: "shop_agent", instructions: SYSTEM, model: openai.chat("gpt-4o-mini"), tools });
const observability = VARIANT.has("messages") ? undefined : new Observability({ configs: { default: configuration } });
const mastra = new Mastra({ agents: { shop_agent: shop }, observability, logger: false });
const agent = mastra.getAgent("shop_agent");

async function converse({ name, inputs, streamed }) {
  const history = [];
  const talk = async () => {
    for (const input of inputs) {
      history.push({ role: "user", content: input });
      let messages;
      if (streamed) {
        const result = await agent.stream(history, { maxSteps: 8 });
        await result.consumeStream();
        messages = (await result.response).messages;
        if (VARIANT.has("messages")) await keepMessages("mastra-db", name, JSON.parse(JSON.stringify(result.messageList.get.all.db())));
      } else {
        const result = await agent.generate(history, { maxSteps: 8 });
        messages = result.response.messages;
        if (VARIANT.has("messages") && result.messages) await keepMessages("mastra-db", name, JSON.parse(JSON.stringify(result.messages)));
      }
      history.push(...messages);
    }
  };
  await (VARIANT.has("bridge") ? around(inputs, talk) : talk());
  if (VARIANT.has("messages")) await keepMessages("mastra-model", name, JSON.parse(JSON.stringify(history)));
}

async function flush() {
  for (const exporter of configuration.exporters ?? []) await exporter.flush?.();
  await mastra.observability?.getDefaultInstance?.()?.flush?.();
  await send();
}

await driveAll({ converse, flush });
await mastra.shutdown?.();
process.exit(process.exitCode ?? 0);
