// VoltAgent with its own OpenTelemetry spans.
import { Agent, createTool, NodeVoltAgentObservability } from "@voltagent/core";
import { createOpenAI } from "@ai-sdk/openai";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { z } from "zod";
import { driveAll, makeTools, OPENAI_URL, SYSTEM } from "./lib/shop.mjs";
import { around, SERVICE, traceExporter } from "./lib/otel.mjs";

const processor = new BatchSpanProcessor(traceExporter());
const observability = new NodeVoltAgentObservability({ serviceName: SERVICE, spanProcessors: [processor], voltOpsSync: { sampling: { strategy: "never" } } });
const shapes = {
  lookup_order: z.object({ id: z.number() }),
  refund: z.object({ id: z.number(), amount: z.number() }),
  search_docs: z.object({ query: z.string() }),
};
const tools = makeTools(({ name, description, run }) => createTool({ name, description, parameters: shapes[name], execute: (input) => run(input) }));
const openai = createOpenAI({ baseURL: OPENAI_URL, apiKey: "key" });
const agent = new Agent({ name: "shop_agent", instructions: SYSTEM, model: openai.chat("gpt-4o-mini"), tools, observability, memory: false });

async function converse({ inputs, streamed }) {
  const history = [];
  await around(inputs, async () => {
    for (const input of inputs) {
      history.push({ role: "user", content: input });
      if (streamed) {
        const result = await agent.streamText(history);
        for await (const _ of result.textStream);
      } else {
        const result = await agent.generateText(history);
        history.push(...result.response.messages);
      }
    }
  });
}

await driveAll({ converse, flush: () => processor.forceFlush() });
process.exit(process.exitCode ?? 0);
