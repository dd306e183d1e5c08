// LlamaIndex.TS agent workflow with OpenLLMetry.
import { createRequire } from "node:module";
import { driveAll, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { startOtel, within } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const { LlamaIndexInstrumentation } = require("@traceloop/instrumentation-llamaindex");
const { flush } = startOtel({ instrumentations: [new LlamaIndexInstrumentation({ traceContent: !VARIANT.has("hidden") })] });
const { tool } = require("llamaindex");
const { agent } = require("@llamaindex/workflow");
const { OpenAI } = require("@llamaindex/openai");
const { z } = require("zod");

const shapes = {
  lookup_order: z.object({ id: z.number() }),
  refund: z.object({ id: z.number(), amount: z.number() }),
  search_docs: z.object({ query: z.string() }),
};
const tools = makeTools(({ name, description, run }) => tool({ name, description, parameters: shapes[name], execute: run }));
const llm = new OpenAI({ model: "gpt-4o-mini", apiKey: "key", baseURL: OPENAI_URL, additionalSessionOptions: { baseURL: OPENAI_URL } });

async function converse({ inputs }) {
  const shop = agent({ name: "shop_agent", llm, tools, systemPrompt: SYSTEM, timeout: 30 });
  let chatHistory = [];
  // OpenLLMetry's spans hang together only under a span that is already there.
  await within("support_request", async () => {
    for (const input of inputs) {
      const result = await shop.run(input, { chatHistory });
      chatHistory = await result.data.state.memory.getLLM();
    }
  });
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
