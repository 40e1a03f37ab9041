// @mastra/client-js: memory, agents, runs, approvals, against a running server.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { MastraClient } from "@mastra/client-js";
import { z } from "zod";

const client = new MastraClient({ baseUrl: process.env.BASE_URL });
const agentId = "conformance";
const fresh = (name) => `${name}-${randomUUID()}`;

async function thread(resourceId = fresh("ada"), more = {}) {
  return await client.createMemoryThread({ agentId, resourceId, threadId: fresh("t"), title: "Trip", metadata: {}, ...more });
}

async function chunks(response) {
  const found = [];
  await response.processDataStream({ onChunk: async (chunk) => void found.push(chunk) });
  return found;
}

const types = (found) => found.map((chunk) => chunk.type);
const said = (found) => found.filter((c) => c.type === "text-delta").map((c) => c.payload.text).join("");
const stored = async (made) => (await client.getMemoryThread({ threadId: made.id, agentId }).listMessages()).messages;
const memoryOf = (made) => ({ thread: made.id, resource: made.resourceId });

test("threads are made, listed, changed, cloned, moved and deleted", async () => {
  const made = await thread();
  assert.equal(made.title, "Trip");
  const listed = await client.listMemoryThreads({ resourceId: made.resourceId, agentId, page: 0, perPage: 5, orderBy: { field: "createdAt", direction: "ASC" } });
  assert.deepEqual(listed.threads.map((t) => t.id), [made.id]);
  assert.equal(listed.total, 1);
  const handle = client.getMemoryThread({ threadId: made.id, agentId });
  assert.equal((await handle.get()).id, made.id);
  const changed = await handle.update({ title: "Winter", metadata: { topic: "ski" }, resourceId: made.resourceId });
  assert.equal(changed.title, "Winter");
  assert.deepEqual(changed.metadata, { topic: "ski" });
  await client.saveMessageToMemory({ agentId, messages: [{ id: fresh("m"), role: "user", content: "hello", threadId: made.id, resourceId: made.resourceId, createdAt: new Date(), type: "text" }] });
  const clone = await handle.clone({ title: "Copy" });
  assert.equal(clone.clonedMessages.length, 1);
  const other = fresh("bob");
  assert.equal((await handle.transfer({ resourceId: other })).resourceId, other);
  await client.deleteThread(made.id, { agentId });
  await assert.rejects(handle.get(), (error) => error.status === 404);
});

test("messages are saved, paged, included and deleted", async () => {
  const made = await thread();
  const messages = Array.from({ length: 7 }, (_, n) => ({ id: `${made.id}-${n + 1}`, role: "user", content: { format: 2, parts: [{ type: "text", text: `text ${n + 1}` }] }, threadId: made.id, resourceId: made.resourceId, createdAt: new Date(1772600000000 + n), type: "text" }));
  assert.equal((await client.saveMessageToMemory({ agentId, messages })).messages.length, 7);
  const handle = client.getMemoryThread({ threadId: made.id, agentId });
  const numbers = ({ messages }) => messages.map((m) => Number(m.id.split("-").at(-1)));
  assert.deepEqual(numbers(await handle.listMessages({ page: 1, perPage: 3 })), [2, 3, 4]);
  assert.deepEqual(numbers(await handle.listMessages({ page: 0, perPage: 3, orderBy: { field: "createdAt", direction: "ASC" } })), [1, 2, 3]);
  assert.deepEqual(numbers(await handle.listMessages({ perPage: 0, include: [{ id: `${made.id}-3`, withPreviousMessages: 1, withNextMessages: 1 }] })), [2, 3, 4]);
  assert.deepEqual(await handle.deleteMessages([`${made.id}-1`, `${made.id}-2`]), { success: true, message: "2 messages deleted successfully" });
  assert.deepEqual(numbers(await handle.listMessages()), [3, 4, 5, 6, 7]);
});

test("working memory, search, status and settings answer", async () => {
  const made = await thread();
  const place = { agentId, threadId: made.id, resourceId: made.resourceId };
  assert.equal((await client.getWorkingMemory(place)).workingMemory, null);
  await client.updateWorkingMemory({ ...place, workingMemory: "# User\n- Name: Ada\n" });
  assert.equal((await client.getWorkingMemory(place)).workingMemory, "# User\n- Name: Ada\n");
  assert.equal((await client.getWorkingMemory({ agentId, threadId: made.id })).workingMemory, "# User\n- Name: Ada\n");
  assert.equal((await client.getMemoryStatus(agentId)).result, true);
  assert.equal((await client.getMemoryConfig({ agentId })).config.lastMessages, 20);
  const agent = client.getAgent(agentId);
  await agent.generate("say grandmother bakes rhubarb crumble", { memory: memoryOf(made) });
  let found;
  for (let tries = 0; tries < 100; tries++) {
    found = await client.searchMemory({ agentId, resourceId: made.resourceId, searchQuery: "rhubarb crumble" });
    if (found.count) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.ok(found.count > 0);
  assert.match(found.results[0].content, /rhubarb/);
});

test("a plus sign in a resource's id is a space in getWorkingMemory, which does not encode it, unless the page does", async () => {
  const resourceId = `ada+${randomUUID()}`;
  const thread = await client.createMemoryThread({ agentId, resourceId });
  const asked = { agentId, threadId: thread.id };
  await client.updateWorkingMemory({ ...asked, resourceId, workingMemory: "# Plus" });
  await assert.rejects(client.getWorkingMemory({ ...asked, resourceId }), (error) => error.status === 403);
  assert.equal((await client.getWorkingMemory({ ...asked, resourceId: encodeURIComponent(resourceId) })).workingMemory, "# Plus");
  assert.equal((await client.getWorkingMemory(asked)).workingMemory, "# Plus");
  assert.equal((await client.listMemoryThreads({ agentId, resourceId })).total, 1);
});

test("agents and tools are described and a tool runs", async () => {
  assert.ok((await client.listAgents())[agentId]);
  const agent = client.getAgent(agentId);
  assert.equal((await agent.details()).name, agentId);
  assert.equal((await agent.getTool("get_weather")).id, "get_weather");
  assert.deepEqual(await agent.executeTool("get_weather", { data: { city: "Oslo" } }), { city: "Oslo", tempC: 21, summary: "sunny" });
  assert.ok((await client.listTools()).get_weather);
});

test("generate and stream answer and remember", async () => {
  const made = await thread();
  const agent = client.getAgent(agentId);
  const answer = await agent.generate("say hello there", { memory: memoryOf(made) });
  assert.equal(answer.text, "hello there");
  const found = await chunks(await agent.stream("recall", { memory: memoryOf(made) }));
  assert.equal(said(found), 'SEEN ["user:say hello there","assistant:hello there"]');
  assert.equal(found[0].type, "start");
  assert.equal(found.at(-1).type, "finish");
  assert.equal((await stored(made)).at(-1).id, found[0].payload.messageId);
});

for (const kind of ["generate", "stream"]) {
  test(`a client tool runs in the client and leaves one call with one outcome (${kind})`, async () => {
    const made = await thread();
    const agent = client.getAgent(agentId);
    const ran = [];
    const clientTools = {
      change_color: {
        id: "change_color",
        description: "Changes the colour",
        inputSchema: z.object({ color: z.string() }),
        execute: async (input) => {
          ran.push(input);
          return { changed: input.color ?? input.context?.color };
        },
      },
    };
    const options = { memory: memoryOf(made), clientTools };
    const asked = 'tool change_color {"color":"red"}';
    let text;
    if (kind === "generate") text = (await agent.generate(asked, options)).text;
    else text = said(await chunks(await agent.stream(asked, options)));
    assert.equal(ran.length, 1);
    assert.match(text, /change_color returned .*red/);
    const calls = (await stored(made)).flatMap((m) => m.content.parts).filter((p) => p.type === "tool-invocation");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].toolInvocation.state, "result");
  });
}

for (const approved of [true, false]) {
  test(`a suspended run goes on after the decision (${approved})`, async () => {
    const made = await thread();
    const agent = client.getAgent(agentId);
    const asked = await chunks(await agent.stream('tool delete_record {"id":"r1"}', { memory: memoryOf(made) }));
    assert.equal(asked.at(-1).type, "tool-call-approval");
    const { runId, payload } = asked.at(-1);
    const runs = await agent.listSuspendedRuns({ threadId: made.id, resourceId: made.resourceId });
    assert.equal(runs.runs[0].runId, runId);
    const place = { runId, toolCallId: payload.toolCallId };
    const response = approved ? await agent.approveToolCall(place) : await agent.declineToolCall({ ...place, reason: "not today" });
    const found = await chunks(response);
    assert.match(said(found), approved ? /"deleted":"r1"/ : /not today/);
    assert.ok(types(found).includes(approved ? "tool-result" : "tool-output-denied"));
  });
}

test("generate's twin of the approval answers JSON", async () => {
  const made = await thread();
  const agent = client.getAgent(agentId);
  const asked = await agent.generate('tool delete_record {"id":"r1"}', { memory: memoryOf(made) });
  assert.equal(asked.finishReason, "suspended");
  const answer = await agent.approveToolCallGenerate({ runId: asked.runId, toolCallId: asked.suspendPayload.toolCallId });
  assert.match(answer.text, /"deleted":"r1"/);
});

test("a failing model is told once the retries are over, and leaves one question", async () => {
  const made = await thread();
  const quick = new MastraClient({ baseUrl: process.env.BASE_URL, retries: 2, backoffMs: 10 });
  await assert.rejects(quick.getAgent(agentId).generate("fail no capacity", { memory: memoryOf(made) }), /no capacity/);
  assert.deepEqual((await stored(made)).map((m) => m.role), ["user"]);
});

test("a message to a thread is answered in the background", async () => {
  const made = await thread();
  const agent = client.getAgent(agentId);
  const accepted = await agent.sendMessage({ message: "say hi", resourceId: made.resourceId, threadId: made.id });
  assert.equal(accepted.accepted, true);
  let found = [];
  for (let tries = 0; tries < 100 && found.length < 2; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    found = await stored(made);
  }
  assert.deepEqual(found.map((m) => m.role), ["user", "assistant"]);
});

test("a running answer is stopped", async () => {
  const made = await thread();
  const agent = client.getAgent(agentId);
  const response = await agent.stream("slow 200 50", { memory: memoryOf(made) });
  const reading = chunks(response);
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal((await agent.abortThread({ resourceId: made.resourceId, threadId: made.id })).aborted, true);
  const found = await reading;
  assert.ok(types(found).includes("abort"));
  assert.equal((await agent.generate("say fine", { memory: memoryOf(made) })).text, "fine");
});
