// A page to try the API on: threads, a chat that streams, and what memory did in the last turn.
// Text is only ever put in as text, never as markup: what a thread holds may come from anybody.

const $ = (id) => document.getElementById(id)
const state = { thread: null, running: null }

const agent = () => $('agent').value
const resource = () => $('resource').value.trim()
const query = (more = {}) => new URLSearchParams({ agentId: agent(), resourceId: resource(), ...more })

async function ask(path, options = {}) {
  const response = await fetch(path, {
    ...options,
    headers: { 'content-type': 'application/json', ...($('token').value && { authorization: `Bearer ${$('token').value.trim()}` }) },
    body: options.body && JSON.stringify(options.body),
  })
  if (!response.ok) {
    const told = await response.json().catch(() => ({}))
    throw new Error(told.error ?? `${response.status} ${response.statusText}`)
  }
  return response
}

const read = async (path, options) => (await ask(path, options)).json()

function element(tag, text = '', attributes = {}) {
  const made = document.createElement(tag)
  made.textContent = text
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

// ------------------------------------------------------------------------------------------------------------- threads

async function showThreads() {
  const { threads } = await read(`/api/memory/threads?${query({ perPage: 50, orderBy: '{"field":"updatedAt","direction":"DESC"}' })}`)
  $('threads').replaceChildren(
    ...threads.map((thread) => {
      const item = element('li', '', { 'aria-current': thread.id === state.thread })
      const remove = element('button', '×', { title: 'Delete this thread' })
      item.append(element('span', thread.title || thread.id.slice(0, 18)), remove)
      item.onclick = () => open(thread.id)
      remove.onclick = async (event) => {
        event.stopPropagation()
        await ask(`/api/memory/threads/${encodeURIComponent(thread.id)}?${query()}`, { method: 'DELETE' })
        if (thread.id === state.thread) await open(null)
        await showThreads()
      }
      if (thread.id === state.thread) $('title').textContent = thread.title || thread.id
      return item
    }),
  )
}

async function open(thread) {
  state.thread = thread
  $('title').textContent = thread ?? 'New thread'
  $('messages').replaceChildren()
  if (thread) {
    const { messages } = await read(`/api/memory/threads/${encodeURIComponent(thread)}/messages?${query()}`)
    for (const message of messages) {
      const item = bubble(message.role)
      for (const part of message.content.parts ?? []) {
        if (part.type === 'text') item.append(part.text)
        if (part.type === 'file') item.append(element('div', part.filename ?? part.mimeType, { class: 'tool' }))
        if (part.type === 'tool-invocation') {
          const call = part.toolInvocation
          item.append(tool(call.toolName, call.args, call.result))
        }
      }
    }
  }
  await Promise.all([showThreads(), showWorkingMemory()])
}

// ---------------------------------------------------------------------------------------------------------------- chat

function bubble(role) {
  const item = element('li', '', { 'data-role': role })
  $('messages').append(item)
  item.scrollIntoView({ block: 'end' })
  return item
}

const tool = (name, args, result) =>
  element('div', `${name}(${JSON.stringify(args ?? {})})${result === undefined ? '' : ` → ${JSON.stringify(result)}`}`, { class: 'tool' })

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop()
    for (const block of blocks) {
      if (block.startsWith('data: ') && block !== 'data: [DONE]') yield JSON.parse(block.slice(6))
    }
  }
}

async function follow(path, body) {
  const item = bubble('assistant')
  const calls = new Map()
  let runId = null
  state.running = state.thread
  $('stop').hidden = false
  try {
    for await (const { type, payload, runId: id } of events(await ask(path, { method: 'POST', body }))) {
      runId = id ?? runId
      if (type === 'text-delta') item.append(payload.text)
      else if (type === 'tool-call') {
        calls.set(payload.toolCallId, tool(payload.toolName, payload.args))
        item.append(calls.get(payload.toolCallId))
      } else if (type === 'tool-result') calls.get(payload.toolCallId)?.append(` → ${JSON.stringify(payload.result)}`)
      else if (type === 'tool-call-approval') item.append(approval(runId, payload))
      else if (type === 'tripwire') item.append(element('div', `Stopped: ${payload.reason}`, { class: 'error' }))
      else if (type === 'error') item.append(element('div', payload.error?.message ?? 'The run failed.', { class: 'error' }))
      else if (type === 'finish') showTurn(payload.output?.usage, payload.metadata?.memory ?? {})
      item.scrollIntoView({ block: 'end' })
    }
  } catch (error) {
    item.append(element('div', error.message, { class: 'error' }))
  }
  state.running = null
  $('stop').hidden = true
  if (runId) await showPrompt(runId)
  await Promise.all([showThreads(), showWorkingMemory()])
  setTimeout(showThreads, 1500) // a title is written after the answer
}

function approval(runId, { toolCallId, toolName }) {
  const box = element('div', `${toolName} waits for you. `, { class: 'tool' })
  for (const [label, verb] of [['Approve', 'approve'], ['Decline', 'decline']]) {
    const button = element('button', label)
    button.onclick = () => {
      box.remove()
      follow(`/api/agents/${encodeURIComponent(agent())}/${verb}-tool-call`, { runId, toolCallId })
    }
    box.append(button, ' ')
  }
  return box
}

async function send(text) {
  state.thread ??= crypto.randomUUID()
  bubble('user').append(text)
  await follow(`/api/agents/${encodeURIComponent(agent())}/stream`, {
    messages: [{ id: crypto.randomUUID(), role: 'user', content: text }],
    memory: { thread: state.thread, resource: resource() },
  })
}

// ----------------------------------------------------------------------------------------------------------- inspector

async function showPrompt(runId) {
  const steps = await read(`/studio/prompts/${encodeURIComponent(runId)}`)
  $('prompt').replaceChildren(
    ...steps.flatMap((prompt, number) => [
      element('h4', steps.length > 1 ? `Step ${number + 1}` : 'As the model saw it'),
      ...prompt.map(({ role, origin, text }) => {
        const shown = element('div', '', { class: 'shown', 'data-origin': origin })
        shown.append(element('b', origin === 'memory' ? `${role}, from memory` : role), text)
        return shown
      }),
    ]),
  )
}

function showTurn(usage = {}, { cost = {}, recall = {} }) {
  const rows = { ...cost, ...usage, recallHits: recall.hits, recallMessages: recall.messages, recallFailed: recall.failed }
  const list = element('dl')
  for (const [name, value] of Object.entries(rows)) {
    if (value !== null && value !== undefined) list.append(element('dt', name), element('dd', String(value)))
  }
  $('cost').replaceChildren(list)
}

async function showWorkingMemory() {
  if (!state.thread) return $('memory').replaceChildren(element('p', 'Open a thread to see it.', { class: 'hint' }))
  const found = await read(`/api/memory/threads/${encodeURIComponent(state.thread)}/working-memory?${query()}`)
  const text = typeof found.workingMemory === 'string' ? found.workingMemory : JSON.stringify(found.workingMemory, null, 2)
  $('memory').replaceChildren(
    element('p', `Of the ${found.source}, version ${found.version ?? 0}`, { class: 'hint' }),
    element('pre', found.workingMemory === null ? 'Nothing yet.' : text),
  )
}

async function search(text) {
  const { results } = await read(`/api/memory/search?${query({ searchQuery: text })}`)
  $('hits').replaceChildren(
    ...results.map((hit) => {
      const shown = element('li', '', { class: 'shown' })
      shown.append(element('b', `${hit.threadTitle} · ${hit.role} · ${Number(hit.score ?? 0).toFixed(2)}`), hit.content)
      shown.onclick = () => open(hit.threadId)
      return shown
    }),
  )
}

// --------------------------------------------------------------------------------------------------------------- start

$('composer').onsubmit = (event) => {
  event.preventDefault()
  const text = $('text').value.trim()
  if (!text || state.running) return
  $('text').value = ''
  send(text)
}
$('text').onkeydown = (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault()
    $('composer').requestSubmit()
  }
}
$('stop').onclick = () =>
  ask(`/api/agents/${encodeURIComponent(agent())}/threads/abort`, { method: 'POST', body: { threadId: state.running, resourceId: resource() } })
$('finder').onsubmit = (event) => {
  event.preventDefault()
  if ($('query').value.trim()) search($('query').value.trim())
}
$('new').onclick = () => open(null)
$('resource').onchange = $('agent').onchange = () => open(null)
for (const tab of document.querySelectorAll('[role="tab"]')) {
  tab.onclick = () => {
    for (const other of document.querySelectorAll('[role="tab"]')) {
      other.setAttribute('aria-selected', other === tab)
      $(other.dataset.pane).hidden = other !== tab
    }
  }
}

async function start() {
  const agents = await read('/api/agents')
  $('agent').replaceChildren(...Object.entries(agents).map(([id, { name }]) => element('option', name, { value: id })))
  await open(null)
}

$('token').onchange = start
window.addEventListener('unhandledrejection', ({ reason }) => bubble('error').append(element('div', reason.message, { class: 'error' })))
await start()
