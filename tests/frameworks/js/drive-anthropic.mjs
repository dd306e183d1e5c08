// The Anthropic SDK in a hand-written loop, with the instrumentations that patch it.
import { createRequire } from "node:module";
import { act, DESK, driveAll, keepMessages, SPECS, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { startOtel, within } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const instrumentations = [];
if (VARIANT.has("oi")) {
  const { AnthropicInstrumentation } = require("@arizeai/openinference-instrumentation-anthropic");
  instrumentations.push(new AnthropicInstrumentation());
} else if (VARIANT.has("traceloop")) {
  const { AnthropicInstrumentation } = require("@traceloop/instrumentation-anthropic");
  instrumentations.push(new AnthropicInstrumentation({ traceContent: !VARIANT.has("hidden") }));
}
const { flush } = startOtel({ instrumentations });
const { Anthropic } = require("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: DESK, apiKey: "key" });
const tools = SPECS.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));

async function ask(messages, streamed) {
  const request = { model: "claude-sonnet-4-5", max_tokens: 500, system: SYSTEM, messages, tools };
  if (!streamed) return (await client.messages.create(request)).content;
  const blocks = [];
  for await (const event of await client.messages.create({ ...request, stream: true })) {
    if (event.type === "content_block_start") blocks[event.index] = { ...event.content_block, input: event.content_block.input && "" };
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") blocks[event.index].text += event.delta.text;
    if (event.type === "content_block_delta" && event.delta.type === "input_json_delta") blocks[event.index].input += event.delta.partial_json;
  }
  return blocks.map((block) => (block.type === "tool_use" ? { ...block, input: JSON.parse(block.input) } : { type: "text", text: block.text }));
}

async function run(block) {
  try {
    return { type: "tool_result", tool_use_id: block.id, content: JSON.stringify(await act(block.name, block.input)) };
  } catch (problem) {
    return { type: "tool_result", tool_use_id: block.id, content: `Error: ${problem.message}`, is_error: true };
  }
}

async function converse({ name, inputs, streamed }) {
  const messages = [];
  await within("support_request", async () => {
    for (const input of inputs) {
      messages.push({ role: "user", content: input });
      for (;;) {
        const content = await ask(messages, streamed);
        messages.push({ role: "assistant", content });
        const calls = content.filter((block) => block.type === "tool_use");
        if (!calls.length) break;
        messages.push({ role: "user", content: await Promise.all(calls.map(run)) });
      }
    }
  });
  if (VARIANT.has("messages")) await keepMessages("anthropic-js", name, messages);
}

await driveAll({ converse, flush });
