// A page that stops, leaves or fails in the middle of an answer, and what it finds after a reload.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { Chat } from "@ai-sdk/react";
import { MastraClient } from "@mastra/client-js";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls, validateUIMessages } from "ai";

const base = process.env.BASE_URL;
const agentId = "conformance";
const agent = new MastraClient({ baseUrl: base }).getAgent(agentId);
const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function page(more = {}) {
  const id = `stop-${randomUUID()}`;
  return new Chat({ id, transport: new DefaultChatTransport({ api: `${base}/api/chat`, body: { resourceId: "ada", agentId } }), ...more });
}

async function reloaded({ id }) {
  const { messages } = await (await fetch(`${base}/api/chat/${id}`)).json();
  await validateUIMessages({ messages });
  return messages;
}

test("threads/abort ends the answer, keeps its part, and the next turn works", async () => {
  const chat = page();
  await chat.sendMessage({ text: "say first" });
  const sending = chat.sendMessage({ text: "slow 200 50" });
  await pause(1500);
  assert.equal((await agent.abortThread({ threadId: chat.id, resourceId: "ada" })).aborted, true);
  await sending;
  const partial = text(chat.messages.at(-1));
  assert.ok(partial.startsWith("w1") && !partial.includes("w200"), partial);
  const kept = (await reloaded(chat)).at(-1);
  assert.equal(kept.id, chat.messages.at(-1).id);
  assert.equal(text(kept), partial);
  await chat.sendMessage({ text: "say fine" });
  assert.equal(chat.status, "ready", String(chat.error));
  assert.equal(text(chat.messages.at(-1)), "fine");
  assert.equal((await reloaded(chat)).length, 6);
});

test("a page rejoins the running answer and holds one copy of it", async () => {
  const chat = page();
  await chat.sendMessage({ text: "say first" });
  const sending = chat.sendMessage({ text: "slow 30 80" });
  await pause(900);
  const second = new Chat({ id: chat.id, messages: await reloaded(chat), transport: new DefaultChatTransport({ api: `${base}/api/chat` }) });
  await second.resumeStream();
  await sending;
  assert.equal(second.status, "ready", String(second.error));
  assert.equal(text(second.messages.at(-1)), text(chat.messages.at(-1)));
  const answers = second.messages.filter((message) => message.id === chat.messages.at(-1).id);
  assert.equal(answers.length, 1);
});

test("a failed first turn keeps the question, and regenerate asks it again", async () => {
  const chat = page();
  await chat.sendMessage({ text: "fail no capacity" });
  assert.equal(chat.status, "error");
  await chat.regenerate();
  assert.equal(chat.status, "error");
  await chat.sendMessage({ text: "say fine" });
  assert.equal(text(chat.messages.at(-1)), "fine");
  assert.deepEqual((await reloaded(chat)).map((m) => m.role).filter((role) => role === "user").length, 2);
});

test("an outcome may travel with the next question", async () => {
  const chat = page();
  await chat.sendMessage({ text: 'tool pick_color {"options":["red"]}' });
  const { toolCallId } = chat.messages.at(-1).parts.find((part) => part.type === "tool-pick_color");
  await chat.addToolOutput({ tool: "pick_color", toolCallId, output: "red" });
  await chat.sendMessage({ text: "say thanks" });
  assert.equal(text(chat.messages.at(-1)), "thanks");
  const parts = (await reloaded(chat)).flatMap((message) => message.parts).filter((part) => part.type === "tool-pick_color");
  assert.deepEqual(parts.map((part) => [part.state, part.output]), [["output-available", "red"]]);
});

test("regenerating an answer that used a tool leaves one answer and one question", async () => {
  const chat = page({ sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
  await chat.sendMessage({ text: 'tool get_weather {"city":"Oslo"}' });
  const old = chat.messages.at(-1).id;
  await chat.regenerate();
  assert.equal(chat.status, "ready", String(chat.error));
  const kept = await reloaded(chat);
  assert.deepEqual(kept.map((m) => m.id), chat.messages.map((m) => m.id));
  assert.equal(kept.length, 2);
  assert.equal(kept[1].parts.filter((part) => part.type === "tool-get_weather").length, 1);
  assert.ok(old);
});

test("metadata of a question and a file of 1 MB come back unchanged", async () => {
  const chat = page();
  const bytes = Buffer.alloc(1_000_000, "memory");
  const url = `data:application/pdf;base64,${bytes.toString("base64")}`;
  await chat.sendMessage({ text: "files", metadata: { mood: "calm", deep: { n: [1, null] } }, files: [{ type: "file", mediaType: "application/pdf", filename: "long é.pdf", url }] });
  assert.equal(text(chat.messages.at(-1)), 'FILES [{"mediaType":"application/pdf","size":1000000}]');
  const [question] = await reloaded(chat);
  assert.equal(question.metadata.mood, "calm");
  assert.deepEqual(question.metadata.deep, { n: [1, null] });
  const file = question.parts.find((part) => part.type === "file");
  assert.equal(file.filename, "long é.pdf");
  assert.ok(Buffer.from(await (await fetch(file.url)).arrayBuffer()).equals(bytes));
});
