// Strands Agents for TypeScript with its own spans.
import { Agent, tool } from "@strands-agents/sdk";
import { OpenAIModel } from "@strands-agents/sdk/models/openai";
import { driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { around, startOtel } from "./lib/otel.mjs";

const { flush } = startOtel();
const tools = makeTools(({ name, description, parameters, run }) =>
  tool({
    name,
    description,
    inputSchema: parameters,
    callback: async (input) => {
      const result = await run(input);
      return Array.isArray(result) ? JSON.stringify(result) : result;
    },
  }),
);

async function converse({ name, inputs, streamed }) {
  const model = new OpenAIModel({ api: "responses", modelId: "gpt-4o-mini", apiKey: "key", clientConfig: { baseURL: OPENAI_URL } });
  const agent = new Agent({ name: "shop_agent", id: "shop_agent", model, tools, systemPrompt: SYSTEM, printer: false });
  await around(inputs, async () => {
    for (const input of inputs) {
      if (streamed) for await (const _ of agent.stream(input));
      else await agent.invoke(input);
    }
  });
  if (VARIANT.has("messages")) await keepMessages("strands-js", name, agent.messages.map((one) => JSON.parse(JSON.stringify(one.toJSON?.() ?? one))));
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
