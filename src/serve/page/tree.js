// tree.js - a chat as a tree of messages, and what a server is asked with it.
//
//     chat: {id, title, created, updated, head, system, settings, messages: Map of id -> message}
//     message: {id, parent, role, content, created, ...}
// Editing or asking again adds a sibling; nothing is taken away.  The path from the root to head is what
// is shown and sent.

function newChat(settings) {
    const now = Date.now();
    return {id: newId(), title: '', created: now, updated: now, head: null, system: '', settings: {...settings},
            messages: new Map()};
}

/* As it is stored -> as it is used, and back.  What does not fit is left out. */
function chatFromJson(j) {
    const messages = new Map();
    for (const m of Array.isArray(j.messages) ? j.messages : []) {
        if (m && typeof m.id === 'string' && typeof m.role === 'string')
            messages.set(m.id, {...m, content: typeof m.content === 'string' ? m.content : ''});
    }
    const chat = {...j, title: String(j.title || ''), system: String(j.system || ''),
                  settings: j.settings && typeof j.settings === 'object' ? j.settings : {}, messages};
    if (!messages.has(chat.head))
        chat.head = null;
    if (!chat.head && messages.size)
        chat.head = latestLeaf(chat, null);
    return chat;
}

function chatToJson(chat) {
    return {...chat, messages: [...chat.messages.values()]};
}

/* From the first message to this one.  A circle, which only a broken file has, ends it. */
function pathTo(chat, id) {
    const path = [], seen = new Set();
    for (let m = chat.messages.get(id); m && !seen.has(m.id); m = chat.messages.get(m.parent)) {
        seen.add(m.id);
        path.push(m);
    }
    return path.reverse();
}

const parentOf = m => m.parent || null;

function childrenOf(chat, id) {
    return [...chat.messages.values()].filter(m => parentOf(m) === id);
}

/* The same question's other forms, in the order they came, with this one among them. */
function siblingsOf(chat, message) {
    return childrenOf(chat, parentOf(message));
}

/* Where one arrives going down from id by the newest message each time. */
function latestLeaf(chat, id) {
    const newest = new Map();
    for (const m of chat.messages.values())
        newest.set(parentOf(m), m.id);
    const seen = new Set();
    while (newest.has(id) && !seen.has(id)) {
        seen.add(id);
        id = newest.get(id);
    }
    return id;
}

function addMessage(chat, message) {
    const m = {id: newId(), parent: chat.head, created: Date.now(), content: '', ...message};
    chat.messages.set(m.id, m);
    chat.head = m.id;
    return m;
}

/* ---- requests ---- */

/* Of an answer's thinking nothing goes back: models are trained on conversations without it. */
function requestMessage(m) {
    const out = {role: m.role, content: m.content};
    if (m.tool_calls && m.tool_calls.length) {
        out.tool_calls = m.tool_calls.map(c => ({id: c.id, type: 'function', function: {
            name: c.function.name, arguments: c.function.arguments}}));
        out.content = m.content || null;
    }
    if (m.tool_call_id)
        out.tool_call_id = m.tool_call_id;
    return out;
}

/* The body for /v1/chat/completions that asks for an answer to the message `to`. */
function requestOf(chat, to, model) {
    const messages = pathTo(chat, to).filter(m => m.role !== 'assistant' || m.content || m.tool_calls)
        .map(requestMessage);
    if (chat.system)
        messages.unshift({role: 'system', content: chat.system});
    const body = {messages, stream: true, stream_options: {include_usage: true}};
    if (model)
        body.model = model;
    for (const s of SETTINGS) {
        const value = chat.settings[s.name];
        if (value !== undefined && value !== null && value !== '')
            s.put(body, value);
    }
    return body;
}

/* ---- streams ---- */

/* Server-sent events out of text in any pieces: push(text) -> [{data} | {comment}]. */
class EventReader {
    constructor() {
        this.rest = '';
        this.data = [];
    }

    push(text) {
        const out = [], lines = (this.rest + text).split('\n');
        this.rest = lines.pop();
        for (const raw of lines) {
            const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
            if (line === '') {
                if (this.data.length)
                    out.push({data: this.data.join('\n')});
                this.data = [];
            } else if (line[0] === ':') {
                out.push({comment: line.slice(1).trim()});
            } else if (line.startsWith('data:')) {
                this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
            }
        }
        return out;
    }
}

/* Puts a chunk of a stream into the message that it belongs to.  Returns whether text has come. */
function takeChunk(message, chunk) {
    if (chunk.error)
        throw new Error(chunk.error.message || 'the server reports an error');
    if (chunk.usage)
        message.usage = chunk.usage;
    if (chunk.timings)
        message.timings = chunk.timings;
    const choice = chunk.choices && chunk.choices[0];
    if (!choice)
        return false;
    const d = choice.delta || {}, thought = d.reasoning_content || d.reasoning;
    if (typeof d.content === 'string')
        message.content += d.content;
    if (typeof thought === 'string')
        message.reasoning = (message.reasoning || '') + thought;
    for (const part of d.tool_calls || [])
        takeCall(message, part);
    if (choice.finish_reason)
        message.finish = choice.finish_reason;
    return Boolean(d.content || thought || d.tool_calls);
}

/* Calls come whole or in pieces, by index. */
function takeCall(message, part) {
    message.tool_calls = message.tool_calls || [];
    const i = Number.isInteger(part.index) && part.index >= 0 && part.index < 128 ? part.index
                                                                                 : message.tool_calls.length;
    while (message.tool_calls.length <= i)
        message.tool_calls.push({id: '', type: 'function', function: {name: '', arguments: ''}});
    const call = message.tool_calls[i], f = part.function || {};
    call.id = part.id || call.id;
    call.function.name += f.name || '';
    call.function.arguments += f.arguments || '';
}
