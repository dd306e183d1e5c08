// An agent in a hand-written loop over the openai SDK with the tools of an MCP server (the MCP TypeScript SDK), each side with its instrumentation.
import { createRequire } from "node:module";
import { act, DESK, driveAll, OPENAI_URL, SPECS, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { startOtel, within } from "./lib/otel.mjs";

const require = createRequire(import.meta.url);
const { OpenAIInstrumentation } = require("@arizeai/openinference-instrumentation-openai");
const { flush, provider } = startOtel({ instrumentations: [new OpenAIInstrumentation()] });
const clientModule = require("@modelcontextprotocol/sdk/client/index.js");
const serverModule = require("@modelcontextprotocol/sdk/server/index.js");
if (VARIANT.has("traceloop")) {
  const { McpInstrumentation } = require("@traceloop/instrumentation-mcp");
  const instrumentation = new McpInstrumentation();
  instrumentation.setTracerProvider(provider);
  instrumentation.manuallyInstrument({ Client: clientModule.Client, Server: serverModule.Server });
} else {
  const { MCPInstrumentation } = require("@arizeai/openinference-instrumentation-mcp");
  new MCPInstrumentation().manuallyInstrument({
    clientStreamableHTTPModule: require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    serverStreamableHTTPModule: require("@modelcontextprotocol/sdk/server/streamableHttp.js"),
  });
}
const { Client } = clientModule;
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { createServer } = require("node:http");
const { z } = require("zod");
const OpenAI = require("openai").default;

const shapes = { lookup_order: { id: z.number() }, refund: { id: z.number(), amount: z.number() }, search_docs: { query: z.string() } };
function makeServer() {
  const server = new McpServer({ name: "shop", version: "1.0.0" });
  for (const { name, description } of SPECS) {
    server.registerTool(name, { description, inputSchema: shapes[name] }, (args) =>
      within(`shop ${name}`, async () => ({ content: [{ type: "text", text: JSON.stringify(await act(name, args)) }] })),
    );
  }
  return server;
}
const http = createServer(async (request, answer) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await makeServer().connect(transport);
  await transport.handleRequest(request, answer);
});
await new Promise((done) => http.listen(0, "127.0.0.1", done));

const model = new OpenAI({ baseURL: OPENAI_URL, apiKey: "key" });

async function ask(messages, tools, streamed) {
  const request = { model: "gpt-4o-mini", messages, tools };
  if (!streamed) return (await model.chat.completions.create(request)).choices[0].message;
  return (await model.chat.completions.stream({ ...request, stream_options: { include_usage: true } }).finalChatCompletion()).choices[0].message;
}

async function talk(client, inputs, streamed) {
  const listed = await client.listTools();
  const tools = listed.tools.map((one) => ({ type: "function", function: { name: one.name, description: one.description, parameters: one.inputSchema } }));
  const messages = [{ role: "system", content: SYSTEM }];
  for (const input of inputs) {
    messages.push({ role: "user", content: input });
    for (;;) {
      const message = await ask(messages, tools, streamed);
      messages.push(message);
      if (!message.tool_calls?.length) break;
      const results = await Promise.all(
        message.tool_calls.map((call) => client.callTool({ name: call.function.name, arguments: JSON.parse(call.function.arguments) })),
      );
      message.tool_calls.forEach((call, index) => messages.push({ role: "tool", tool_call_id: call.id, content: results[index].content[0].text }));
    }
  }
}

async function converse({ inputs, streamed }) {
  const client = new Client({ name: "shop-agent", version: "1.0.0" });
  const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${http.address().port}/mcp`));
  const whole = async () => {
    await client.connect(transport);
    await talk(client, inputs, streamed);
    await client.close();
  };
  await within("support_request", whole);
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
