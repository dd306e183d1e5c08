// Google ADK for TypeScript with its own spans, over a Gemini endpoint.
import { DESK, driveAll, keepMessages, makeTools, SYSTEM, VARIANT } from "./lib/shop.mjs";
import { around, startOtel } from "./lib/otel.mjs";
import { z } from "zod";

const { flush } = startOtel();
// ADK takes its tracer while it is imported, so OpenTelemetry must be there before.
const { FunctionTool, Gemini, InMemoryRunner, LlmAgent, StreamingMode } = await import("@google/adk");
process.env.GOOGLE_GEMINI_BASE_URL = DESK;
const shapes = {
  lookup_order: z.object({ id: z.number() }),
  refund: z.object({ id: z.number(), amount: z.number() }),
  search_docs: z.object({ query: z.string() }),
};
const tools = makeTools(({ name, description, run }) => new FunctionTool({ name, description, parameters: shapes[name], execute: run }));
const model = new Gemini({ model: "gemini-2.5-flash", apiKey: "key" });
const agent = new LlmAgent({ name: "shop_agent", model, instruction: SYSTEM, tools });

async function converse({ name, inputs, streamed }) {
  const runner = new InMemoryRunner({ agent, appName: "shop" });
  const session = await runner.sessionService.createSession({ appName: "shop", userId: "u" });
  await around(inputs, async () => {
    for (const input of inputs) {
      const events = runner.runAsync({
        userId: "u",
        sessionId: session.id,
        newMessage: { role: "user", parts: [{ text: input }] },
        runConfig: streamed ? { streamingMode: StreamingMode.SSE } : undefined,
      });
      for await (const event of events) if (event.errorMessage) throw new Error(event.errorMessage);
    }
  });
  if (VARIANT.has("messages")) {
    const whole = await runner.sessionService.getSession({ appName: "shop", userId: "u", sessionId: session.id });
    await keepMessages("adk-js-session", name, JSON.parse(JSON.stringify(whole)));
  }
}

await driveAll({ converse, flush });
process.exit(process.exitCode ?? 0);
