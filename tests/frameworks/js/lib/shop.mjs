// The shop agent that every driver builds with its own framework: the same texts, tools and scenarios.
import { readFileSync } from "node:fs";

const script = JSON.parse(readFileSync(new URL("./scenarios.json", import.meta.url), "utf8"));
export const SYSTEM = script.system;
export const SPECS = script.tools;
export const DESK = process.env.DESK_URL;
export const OPENAI_URL = `${DESK}/v1`;
export const VARIANT = new Set((process.env.VARIANT ?? "").split(",").filter(Boolean));
const ledger = [];

const actions = {
  lookup_order: ({ id }) => ({ id, total: id === 17 ? 42.5 : 9.0, status: "shipped" }),
  refund: ({ id, amount }) => {
    if (id === 99) throw new Error("order 99 not found");
    return { refunded: amount, id };
  },
  search_docs: () => [{ title: "Returns", text: "Returns are free within 30 days." }],
};

// The truth: arguments and results of a tool, logged here before a framework changes them.
export async function act(name, args) {
  await new Promise((done) => setTimeout(done, name === "lookup_order" ? 20 : 10));
  try {
    const result = actions[name](args);
    ledger.push({ name, arguments: args, result });
    return result;
  } catch (problem) {
    ledger.push({ name, arguments: args, error: problem.message });
    throw problem;
  }
}

export function spec(name) {
  return SPECS.find((one) => one.name === name);
}

// One entry per tool, built with the framework's own function.
export function makeTools(make) {
  return SPECS.map((one) => make({ ...one, run: (args) => act(one.name, args) }));
}

export async function notify(errand, document) {
  const answer = await fetch(`${DESK}/desk/${errand}`, { method: "POST", body: JSON.stringify(document) });
  if (!answer.ok) throw new Error(`desk: ${await answer.text()}`);
}

export const keepMessages = (kind, scenario, messages) => notify("messages", { kind, scenario, messages });

// Runs each scenario: `converse` gets its name, the inputs of its turns and whether to stream; `flush` sends what exporters have queued.
export async function driveAll({ converse, flush = async () => {}, only }) {
  for (const [name, turns] of Object.entries(script.scenarios)) {
    if (only && !only.includes(name)) continue;
    await notify("begin", { scenario: name });
    ledger.length = 0;
    let trouble;
    try {
      await converse({ name, inputs: turns.map((turn) => turn.input), streamed: name === "streamed" });
    } catch (problem) {
      trouble = problem;
      console.error(`${name}:`, problem);
    }
    await flush();
    await notify("end", { scenario: name, ledger, trouble: trouble?.message });
    if (trouble) process.exitCode = 1;
  }
}
