// The Google Gen AI SDK in a hand-written loop: its history of contents. No instrumentation for JavaScript is available.
import { GoogleGenAI } from "@google/genai";
import { act, DESK, driveAll, keepMessages, SPECS, SYSTEM } from "./lib/shop.mjs";

const client = new GoogleGenAI({ apiKey: "key", httpOptions: { baseUrl: DESK } });
const tools = [{ functionDeclarations: SPECS.map(({ name, description, parameters }) => ({ name, description, parametersJsonSchema: parameters })) }];

async function run({ id, name, args }) {
  try {
    return { functionResponse: { id, name, response: { output: await act(name, args) } } };
  } catch (problem) {
    return { functionResponse: { id, name, response: { error: problem.message } } };
  }
}

async function converse({ name, inputs, streamed }) {
  const chat = client.chats.create({ model: "gemini-2.5-flash", config: { systemInstruction: SYSTEM, tools } });
  for (const input of inputs) {
    let message = [{ text: input }];
    while (message.length) {
      let calls = [];
      if (streamed) {
        for await (const chunk of await chat.sendMessageStream({ message })) calls.push(...(chunk.functionCalls ?? []));
      } else {
        calls = (await chat.sendMessage({ message })).functionCalls ?? [];
      }
      message = await Promise.all(calls.map(run));
    }
  }
  await keepMessages("gemini-js", name, JSON.parse(JSON.stringify(chat.getHistory())));
}

await driveAll({ converse });
