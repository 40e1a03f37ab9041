// @mastra/client-js: decisions, subscriptions, messages to a thread, odd ids and what is not offered.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { MastraClient } from "@mastra/client-js";
import { z } from "zod";

const client = new MastraClient({ baseUrl: process.env.BASE_URL });
const agentId = "conformance";
const agent = client.getAgent(agentId);
const fresh = (name) => `${name}-${randomUUID()}`;
const place = () => ({ thread: fresh("t"), resource: fresh("ada") });
const ids = (memory) => ({ threadId: memory.thread, resourceId: memory.resource });
const stored = async (memory) => (await client.listThreadMessages(memory.thread, { agentId, resourceId: memory.resource })).messages;
const types = (found) => found.map((chunk) => chunk.type);
const said = (found) => found.filter((c) => c.type === "text-delta").map((c) => c.payload.text).join("");

async function chunks(response) {
  const found = [];
  await response.processDataStream({ onChunk: async (chunk) => void found.push(chunk) });
  return found;
}

async function until(look, what) {
  for (let tries = 0; tries < 150; tries++) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`waited in vain for ${what}`);
}

async function suspended(memory) {
  const asked = await agent.generate('tool delete_record {"id":"r1"}', { memory });
  assert.equal(asked.finishReason, "suspended");
  return { runId: asked.runId, toolCallId: asked.suspendPayload.toolCallId };
}

const onlyCall = async (memory) => {
  const calls = (await stored(memory)).flatMap((m) => m.content.parts).filter((p) => p.type === "tool-invocation");
  assert.equal(calls.length, 1);
  return calls[0].toolInvocation;
};

test("the twin that declines answers JSON and keeps the decision", async () => {
  const memory = place();
  const answer = await agent.declineToolCallGenerate({ ...(await suspended(memory)), reason: "not today" });
  assert.match(answer.text, /not today/);
  const call = await onlyCall(memory);
  assert.equal(call.state, "output-denied");
  assert.equal(call.approval.approved, false);
  assert.equal(call.approval.reason, "not today");
});

test("a declined call without a reason is told with the usual words", async () => {
  const memory = place();
  const found = await chunks(await agent.declineToolCall(await suspended(memory)));
  assert.match(said(found), /Tool call was not approved by the user/);
  const denied = found.find((chunk) => chunk.type === "tool-output-denied");
  assert.equal(denied.payload.approval.approved, false);
});

test("a granted stream gives the call before its result and keeps both", async () => {
  const memory = place();
  const run = await suspended(memory);
  const found = await chunks(await agent.approveToolCall(run));
  assert.ok(types(found).indexOf("tool-call") < types(found).indexOf("tool-result"));
  assert.ok(types(found).includes("tool-call"));
  assert.ok(found.every((chunk) => chunk.runId === run.runId));
  assert.ok(found.filter((c) => c.type === "step-start").every((c) => c.payload.messageId));
  const call = await onlyCall(memory);
  assert.equal(call.state, "result");
  assert.deepEqual(call.result, { deleted: "r1" });
  assert.equal(call.approval.approved, true);
  assert.equal((await agent.listSuspendedRuns(ids(memory))).total, 0);
});

test("a second decision does not run the tool again", async () => {
  const memory = place();
  const run = await suspended(memory);
  await chunks(await agent.approveToolCall(run));
  const before = await stored(memory);
  await agent.approveToolCallGenerate(run).catch((error) => assert.ok(error.status >= 400 && error.status < 500, String(error)));
  assert.deepEqual(await stored(memory), before);
});

test("resumeStream decides as well", async () => {
  for (const method of ["resumeStream", "resumeStreamUntilIdle"]) {
    const memory = place();
    const found = await chunks(await agent[method]({ approved: true }, { ...(await suspended(memory)), memory }));
    assert.match(said(found), /"deleted":"r1"/);
  }
});

test("sendToolApproval goes on in the background", async () => {
  const memory = place();
  const { toolCallId, runId } = await suspended(memory);
  const accepted = await agent.sendToolApproval({ ...ids(memory), toolCallId, approved: true });
  assert.deepEqual(accepted, { accepted: true, runId, toolCallId });
  await until(async () => (await onlyCall(memory)).state === "result", "the result");
});

test("every call asks where requireToolApproval is set", async () => {
  const memory = place();
  const found = await chunks(await agent.stream('tool get_weather {"city":"Oslo"}', { memory, requireToolApproval: true }));
  assert.equal(found.at(-1).type, "tool-call-approval");
  const { runs, total } = await agent.listSuspendedRuns(ids(memory));
  assert.equal(total, 1);
  assert.equal(runs[0].status, "suspended");
  assert.deepEqual(runs[0].toolCalls[0].args, { city: "Oslo" });
  assert.equal(runs[0].toolCalls[0].requiresApproval, true);
  const asked = { toolCallId: found.at(-1).payload.toolCallId, runId: found.at(-1).runId };
  assert.match(said(await chunks(await agent.approveToolCall(asked))), /"tempC":21/);
});

test("suspended runs are paged and bounded by dates", async () => {
  const memory = place();
  await suspended(memory);
  const later = new Date(Date.now() + 60_000);
  assert.equal((await agent.listSuspendedRuns({ ...ids(memory), fromDate: later })).total, 0);
  assert.equal((await agent.listSuspendedRuns({ ...ids(memory), toDate: later, page: 0, perPage: 1 })).runs.length, 1);
  assert.equal((await agent.listSuspendedRuns({ ...ids(memory), page: 1, perPage: 1 })).runs.length, 0);
});

test("subscribers see the run that a message starts, and can stop one", async () => {
  const memory = place();
  await agent.generate("say hi", { memory });
  const subscription = await agent.subscribeToThread(ids(memory));
  const found = [];
  const reading = subscription.processDataStream({ onChunk: (chunk) => void found.push(chunk) });
  const { runId, accepted } = await agent.sendMessage({ message: "say hello there", ...ids(memory) });
  assert.equal(accepted, true);
  await until(() => types(found).includes("finish"), "the end of the run");
  assert.equal(said(found), "hello there");
  assert.ok(found.every((chunk) => chunk.runId === runId), `${runId} ${found.map((c) => c.runId)}`);
  assert.ok(Array.isArray(found.at(-1).payload.messages.nonUser));
  found.length = 0;
  await agent.sendMessage({ message: "slow 200 50", ...ids(memory) });
  await until(() => said(found) !== "", "the first word");
  assert.equal(await subscription.abort(), true);
  await until(() => types(found).includes("abort"), "the abort");
  subscription.unsubscribe();
  await reading;
  assert.equal(await agent.abortThread(ids(memory)).then((a) => a.aborted), false);
});

test("queued, kept and dropped messages and signals are accepted", async () => {
  const memory = place();
  await agent.generate("say hi", { memory });
  const kept = await agent.sendMessage({ message: { contents: "note this", attributes: { kind: "note" } }, ...ids(memory), ifIdle: { behavior: "persist" } });
  assert.equal(kept.accepted, true);
  assert.ok(kept.signal.id && kept.signal.createdAt && kept.signal.acceptedAt);
  assert.equal((await stored(memory)).length, 3);
  await agent.sendMessage({ message: "drop this", ...ids(memory), ifIdle: { behavior: "discard" } });
  assert.equal((await agent.queueMessage({ message: [{ type: "text", text: "say queued" }], ...ids(memory) })).accepted, true);
  await until(async () => (await stored(memory)).length === 5, "the answer to the queued message");
  assert.equal((await agent.sendSignal({ signal: { type: "user-message", tagName: "user", contents: "say signalled" }, ...ids(memory) })).accepted, true);
  await until(async () => (await stored(memory)).length === 7, "the answer to the signal");
  assert.ok(!JSON.stringify(await stored(memory)).includes("drop this"));
});

test("streamUntilIdle equals stream", async () => {
  assert.equal(said(await chunks(await agent.streamUntilIdle("say hello", { memory: place() }))), "hello");
  assert.equal(said(await chunks(await agent.stream("say hello", { memory: place(), untilIdle: true }))), "hello");
});

test("every command streams the chunks of its kind", async () => {
  const thought = await chunks(await agent.stream("think so it is", { memory: place() }));
  assert.deepEqual([...new Set(types(thought))], ["start", "step-start", "reasoning-start", "reasoning-delta", "reasoning-end", "text-start", "text-delta", "text-end", "step-finish", "finish"]);
  const tool = await chunks(await agent.stream('tool get_weather {"city":"Oslo"}', { memory: place() }));
  assert.deepEqual([...new Set(types(tool))].slice(0, 8), ["start", "step-start", "tool-call-input-streaming-start", "tool-call-delta", "tool-call-input-streaming-end", "tool-call", "tool-result", "step-finish"]);
  const broken = await chunks(await agent.stream("tool broken_tool {}", { memory: place() }));
  assert.equal(broken.find((c) => c.type === "tool-error").payload.error.message, "tool exploded");
  const failed = await chunks(await agent.stream("fail no capacity", { memory: place() }));
  assert.deepEqual(types(failed), ["start", "step-start", "error", "step-finish", "finish"]);
  assert.match(failed[2].payload.error.message, /no capacity/);
  assert.ok(!("stack" in failed[2].payload.error));
});

test("a client tool that throws leaves the thread usable", async () => {
  for (const kind of ["generate", "stream"]) {
    const memory = place();
    const clientTools = { change_color: { id: "change_color", description: "…", inputSchema: z.object({ color: z.string() }), execute: async () => { throw new Error("no paint"); } } };
    const asked = 'tool change_color {"color":"red"}';
    // generate lets the error through to the page and sends nothing back; stream sends it as the outcome.
    if (kind === "generate") await assert.rejects(agent.generate(asked, { memory, clientTools }), /no paint/);
    else assert.match(said(await chunks(await agent.stream(asked, { memory, clientTools }))), /no paint/);
    assert.equal((await agent.generate("say fine", { memory })).text, "fine");
    assert.equal((await onlyCall(memory)).toolName, "change_color");
  }
});

test("client tools work without a thread", async () => {
  const clientTools = { change_color: { id: "change_color", description: "…", inputSchema: z.object({ color: z.string() }), execute: async () => ({ ok: 1 }) } };
  const messages = [{ role: "user", content: 'tool change_color {"color":"red"}' }];
  assert.match((await agent.generate(messages, { clientTools })).text, /"ok":1/);
  assert.match(said(await chunks(await agent.stream(messages, { clientTools }))), /"ok":1/);
});

test("generate answers every key that pages read", async () => {
  const memory = { ...place() };
  const answer = await agent.generate('tool get_weather {"city":"Oslo"}', { memory: { ...memory, thread: { id: memory.thread, title: "Named", metadata: { a: 1 } } } });
  for (const key of ["text", "finishReason", "runId", "usage", "totalUsage", "steps", "toolCalls", "toolResults", "reasoning", "sources", "files", "warnings", "response", "messages", "rememberedMessages"]) assert.ok(key in answer, key);
  assert.equal(answer.finishReason, "stop");
  assert.equal(answer.steps.length, 2);
  assert.deepEqual(answer.steps.map((s) => s.stepType), ["initial", "tool-result"]);
  assert.equal(answer.toolCalls[0].payload.toolName, "get_weather");
  assert.deepEqual(answer.toolResults[0].payload.result, { city: "Oslo", tempC: 21, summary: "sunny" });
  const made = await client.getMemoryThread({ threadId: memory.thread, agentId }).get();
  assert.equal(made.title, "Named");
  assert.deepEqual(made.metadata, { a: 1 });
});

test("nothing is stored without memory and under readOnly", async () => {
  assert.equal((await agent.generate("say hi")).text, "hi");
  const memory = place();
  await agent.generate("say one", { memory });
  await agent.generate("say two", { memory: { ...memory, options: { readOnly: true } } });
  assert.equal((await stored(memory)).length, 2);
});

test("context of the request may ride on any call", async () => {
  const memory = place();
  const requestContext = { user: "Zoë", n: 1 };
  await agent.generate("say hi", { memory, requestContext });
  const handle = client.getMemoryThread({ threadId: memory.thread, agentId });
  await handle.get(requestContext);
  await handle.listMessages({ requestContext });
  await handle.update({ title: "x", metadata: {}, resourceId: memory.resource, requestContext });
  await client.getWorkingMemory({ agentId, threadId: memory.thread, resourceId: memory.resource, requestContext });
  await client.searchMemory({ agentId, resourceId: memory.resource, searchQuery: "hi", requestContext });
  await client.listMemoryThreads({ resourceId: memory.resource, agentId, requestContext });
  await handle.delete({ requestContext });
});

for (const odd of ["a:b", "a@b.c", "a+b", "a b", "é ü ñ", "日本", "a~b'c(d)", "x".repeat(500)]) {
  test(`ids like ${odd.slice(0, 12)} live in paths`, async () => {
    const threadId = `${odd}${odd.length > 400 ? "" : randomUUID()}`;
    // client-js puts the resource as it is into one query (working memory), where a plus sign means a space.
    const resourceId = `r ${odd.replace("+", "-")}`.slice(0, 500);
    const made = await client.createMemoryThread({ agentId, resourceId, threadId, title: "Odd", metadata: { at: odd } });
    const handle = client.getMemoryThread({ threadId, agentId });
    assert.equal(made.id, threadId);
    assert.equal((await handle.get()).id, threadId);
    await agent.generate("say hi", { memory: { thread: threadId, resource: resourceId } });
    const { messages } = await handle.listMessages({ resourceId });
    assert.equal(messages.length, 2);
    await handle.deleteMessages(messages.map((m) => m.id));
    assert.deepEqual((await client.listMemoryThreads({ resourceId, agentId, metadata: { at: odd } })).threads.map((t) => t.id), [threadId]);
    await client.updateWorkingMemory({ agentId, threadId, resourceId, workingMemory: `# ${odd}` });
    assert.equal((await client.getWorkingMemory({ agentId, threadId, resourceId })).workingMemory, `# ${odd}`);
    const clone = await handle.clone({ newThreadId: `${threadId.slice(0, 490)} two` });
    await client.deleteThread(clone.thread.id, { agentId });
    assert.deepEqual(await client.deleteThread(threadId, { agentId }), { result: "Thread deleted" });
  });
}

test("the network twins answer like their counterparts", async () => {
  const memory = place();
  const base = `${process.env.BASE_URL}/api/memory/network`;
  const json = { "content-type": "application/json" };
  const made = await (await fetch(`${base}/threads?networkId=${agentId}`, { method: "POST", headers: json, body: JSON.stringify({ ...ids(memory), title: "Net" }) })).json();
  assert.equal(made.id, memory.thread);
  assert.equal((await (await fetch(`${base}/threads?networkId=${agentId}&resourceId=${memory.resource}`)).json()).total, 1);
  assert.equal((await (await fetch(`${base}/threads/${memory.thread}?networkId=${agentId}`)).json()).title, "Net");
  const message = { id: fresh("m"), role: "user", content: "hello", ...ids(memory) };
  await fetch(`${base}/save-messages?networkId=${agentId}`, { method: "POST", headers: json, body: JSON.stringify({ messages: [message] }) });
  assert.equal((await client.listThreadMessages(memory.thread, { networkId: agentId })).messages.length, 1);
  assert.equal((await (await fetch(`${base}/messages/delete?networkId=${agentId}`, { method: "POST", headers: json, body: JSON.stringify({ messageIds: message.id }) })).json()).message, "1 message deleted successfully");
  assert.equal((await (await fetch(`${base}/status?networkId=${agentId}`)).json()).result, true);
  assert.deepEqual(await client.deleteThread(memory.thread, { networkId: agentId }), { result: "Thread deleted" });
});

test("what is not offered is refused quickly and not repeated", async () => {
  let calls = 0;
  const counting = new MastraClient({ baseUrl: process.env.BASE_URL, retries: 3, backoffMs: 1, fetch: (...args) => (calls++, fetch(...args)) });
  const other = counting.getAgent(agentId);
  const attempts = [
    () => other.generateLegacy({ messages: "hi" }),
    () => other.streamLegacy({ messages: "hi" }),
    () => other.network("hi", {}),
    () => other.observe({ runId: "none", onChunk: () => {} }),
    () => other.recover({ runId: "none" }),
    () => other.enhanceInstructions("a", "b"),
    () => other.clone({}),
    () => other.listVersions(),
    () => other.updateModel({ modelId: "m", provider: "p" }),
    () => other.voice.getSpeakers(),
    () => other.voice.speak("hi"),
    () => other.browserSession(),
    () => other.readPlan("x"),
    () => counting.getObservationalMemory({ agentId, resourceId: "ada" }),
    () => counting.awaitBufferStatus({ agentId, resourceId: "ada" }),
    () => counting.getAgent("nobody").details(),
    () => counting.getAgent("nobody").generate("hi"),
    () => other.getTool("nothing"),
    () => other.executeTool("nothing", { data: {} }),
    () => other.approveToolCallGenerate({ runId: "none", toolCallId: "none" }),
    () => counting.getMemoryThread({ threadId: fresh("none"), agentId }).get(),
    () => counting.getMemoryThread({ threadId: fresh("none"), agentId }).listMessages(),
    () => counting.getMemoryThread({ threadId: fresh("none"), agentId }).clone(),
  ];
  for (const attempt of attempts) {
    calls = 0;
    const error = await attempt().then((answer) => assert.fail(`${attempt} answered ${JSON.stringify(answer)}`), (e) => e);
    const status = error.status ?? Number(/status: (\d+)/.exec(error.message)?.[1]);
    assert.ok([400, 404, 501].includes(status), `${attempt}: ${error}`);
    if (status !== 501) assert.equal(calls, 1, String(attempt));
  }
});

test("structured output comes as object", async () => {
  const schema = z.object({ a: z.number() });
  const answer = await agent.generate('say {"a":1}', { structuredOutput: { schema } });
  assert.deepEqual(answer.object, { a: 1 });
  const found = await chunks(await agent.stream('say {"a":1}', { structuredOutput: { schema } }));
  assert.deepEqual(found.find((c) => c.type === "object-result").object, { a: 1 });
});

test("leaving a stream keeps the thread usable", async () => {
  const memory = place();
  const leaving = new AbortController();
  const quick = new MastraClient({ baseUrl: process.env.BASE_URL, abortSignal: leaving.signal });
  const response = await quick.getAgent(agentId).stream("slow 30 50", { memory });
  setTimeout(() => leaving.abort(), 300);
  await chunks(response).catch(() => {});
  assert.equal((await agent.generate("say fine", { memory })).text, "fine");
  const roles = (await stored(memory)).map((m) => m.role);
  assert.equal(roles[0], "user");
  assert.deepEqual(roles.slice(-2), ["user", "assistant"]);
});
