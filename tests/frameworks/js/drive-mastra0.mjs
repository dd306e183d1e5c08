// Mastra 0.24 with its AI tracing of that time.
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";
import { DESK, driveAll, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { SERVICE } from "./lib/otel.mjs";

let exporter;
if (VARIANT.has("arize")) {
  const { ArizeExporter } = await import("@mastra/arize");
  exporter = new ArizeExporter({ endpoint: `${DESK}/v1/traces`, apiKey: "key", projectName: SERVICE });
} else {
  const { OtelExporter } = await import("@mastra/otel-exporter");
  exporter = new OtelExporter({ provider: { custom: { endpoint: `${DESK}/v1/traces`, protocol: "http/json" } }, timeout: 5000, batchSize: 1000 });
}
const shapes = {
  lookup_order: z.object({ id: z.number() }),
  refund: z.object({ id: z.number(), amount: z.number() }),
  search_docs: z.object({ query: z.string() }),
};
const tools = Object.fromEntries(
  makeTools(({ name, description, run }) => [name, createTool({ id: name, description, inputSchema: shapes[name], execute: ({ context }) => run(context) })]),
);
const openai = createOpenAI({ baseURL: OPENAI_URL, apiKey: "key" });
const shop = new Agent({ id: "shop_agent", name: "shop_agent", instructions: SYSTEM, model: openai.chat("gpt-4o-mini"), tools });
const mastra = new Mastra({ agents: { shop_agent: shop }, observability: { configs: { default: { serviceName: SERVICE, exporters: [exporter] } } }, telemetry: { enabled: false }, logger: false });
const agent = mastra.getAgent("shop_agent");

async function converse({ inputs, streamed }) {
  const history = [];
  for (const input of inputs) {
    history.push({ role: "user", content: input });
    if (streamed) {
      const result = await agent.stream(history, { maxSteps: 8 });
      await result.consumeStream();
    } else {
      const result = await agent.generate(history, { maxSteps: 8 });
      history.push(...result.response.messages);
    }
  }
}

// This version has no way to flush: an exporter sends its queue after five idle seconds.
const flush = () => new Promise((done) => setTimeout(done, 6500));
await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
