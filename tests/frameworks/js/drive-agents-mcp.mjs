// OpenAI Agents JS with the tools of an MCP server, with OpenInference over the SDK's tracing.
import { createServer } from "node:http";
import * as agents from "@openai/agents";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { OpenAIAgentsInstrumentation } from "@arizeai/openinference-instrumentation-openai-agents";
import OpenAI from "openai";
import { z } from "zod";
import { act, driveAll, OPENAI_URL, SPECS, SYSTEM } from "./lib/shop.mjs";
import { startOtel } from "./lib/otel.mjs";

const { flush: send, provider } = startOtel();
new OpenAIAgentsInstrumentation({ tracerProvider: provider }).manuallyInstrument(agents);
agents.setDefaultOpenAIClient(new OpenAI({ baseURL: OPENAI_URL, apiKey: "key" }));
const shapes = { lookup_order: { id: z.number() }, refund: { id: z.number(), amount: z.number() }, search_docs: { query: z.string() } };
const http = createServer(async (request, answer) => {
  const server = new McpServer({ name: "shop", version: "1.0.0" });
  for (const { name, description } of SPECS) {
    server.registerTool(name, { description, inputSchema: shapes[name] }, async (args) => ({ content: [{ type: "text", text: JSON.stringify(await act(name, args)) }] }));
  }
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await server.connect(transport);
  await transport.handleRequest(request, answer);
});
await new Promise((done) => http.listen(0, "127.0.0.1", done));
const server = new agents.MCPServerStreamableHttp({ url: `http://127.0.0.1:${http.address().port}/mcp`, name: "shop", cacheToolsList: true });
await server.connect();
const agent = new agents.Agent({ name: "Shop agent", instructions: SYSTEM, model: "gpt-4o-mini", mcpServers: [server] });

async function converse({ inputs, streamed }) {
  let history = [];
  await agents.withTrace("shop support", async () => {
    for (const input of inputs) {
      const result = await agents.run(agent, [...history, { role: "user", content: input }], { stream: streamed });
      if (streamed) await result.completed;
      history = result.history;
    }
  });
}

async function flush() {
  await agents.getGlobalTraceProvider().forceFlush();
  await send();
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
