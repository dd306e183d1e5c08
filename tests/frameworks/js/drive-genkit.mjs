// Genkit with its own OpenTelemetry spans.
import { createRequire } from "node:module";
import { driveAll, keepMessages, makeTools, OPENAI_URL, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { startOtel } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const { flush } = startOtel();
const { genkit, z } = require("genkit");
const { disableGenkitOTelInitialization } = require("genkit/tracing");
disableGenkitOTelInitialization();
const { openAI } = require("@genkit-ai/compat-oai/openai");
const ai = genkit({ plugins: [openAI({ apiKey: "key", baseURL: OPENAI_URL })] });
const shapes = { lookup_order: { id: z.number() }, refund: { id: z.number(), amount: z.number() }, search_docs: { query: z.string() } };
// A tool that throws ends Genkit's run; a shop that wants an answer returns the failure as the tool's result.
const tools = makeTools(({ name, description, run }) =>
  ai.defineTool({ name, description, inputSchema: z.object(shapes[name]), outputSchema: z.any() }, async (input) => {
    try {
      return await run(input);
    } catch (problem) {
      if (VARIANT.has("throws")) throw problem;
      return { error: problem.message };
    }
  }),
);
const shop = ai.defineFlow({ name: "shop_agent", inputSchema: z.any(), outputSchema: z.any() }, async ({ input, history, streamed }) => {
  const request = { model: openAI.model("gpt-4o-mini"), system: SYSTEM, prompt: input, messages: history, tools };
  if (!streamed) {
    const answer = await ai.generate(request);
    return { text: answer.text, messages: answer.messages };
  }
  const { stream, response } = ai.generateStream(request);
  for await (const _ of stream);
  const answer = await response;
  return { text: answer.text, messages: answer.messages };
});

const conversation = ai.defineFlow({ name: "conversation", inputSchema: z.any() }, ({ talk }) => talk());

async function converse({ name, inputs, streamed }) {
  let history = [];
  const talk = async () => {
    for (const input of inputs) history = (await shop({ input, history, streamed })).messages.filter((one) => one.role !== "system");
  };
  // A flow begins a trace of its own unless it runs inside another flow.
  await (inputs.length > 1 ? conversation({ talk }) : talk());
  if (VARIANT.has("messages")) await keepMessages("genkit", name, JSON.parse(JSON.stringify(history)));
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
