// export.js - chats as files: JSON, which comes back as it was, and Markdown, for people.

/* Fenced by more backticks than stand within. */
function fenced(text, lang) {
    let n = 3;
    for (const run of text.match(/`{3,}/g) || [])
        n = Math.max(n, run.length + 1);
    const fence = '`'.repeat(n);
    return fence + (lang || '') + '\n' + text + '\n' + fence + '\n';
}

/* The path that is shown; the other branches are in the JSON. */
function chatToMarkdown(chat) {
    const out = ['# ' + (chat.title || 'Chat').replace(/\s+/g, ' ') + '\n'];
    if (chat.system)
        out.push('**System**\n\n' + chat.system + '\n');
    for (const m of pathTo(chat, chat.head)) {
        const who = {user: 'You', assistant: m.model || 'Assistant', tool: 'Result'}[m.role] || m.role;
        out.push('**' + who + '**\n');
        if (m.reasoning)
            out.push('<details><summary>Thinking</summary>\n\n' + m.reasoning + '\n\n</details>\n');
        if (m.role === 'tool')
            out.push(fenced(m.content));
        else if (m.content)
            out.push(m.content + '\n');
        for (const c of m.tool_calls || [])
            out.push('Calls `' + c.function.name + '`:\n\n' + fenced(prettyJson(c.function.arguments), 'json'));
    }
    return out.join('\n');
}

function prettyJson(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch (e) {
        return text;
    }
}

function chatsToJson(chats) {
    return JSON.stringify({format: 'lode-chats', version: 1, chats: chats.map(chatToJson)}, null, 1);
}

/* A list of messages without a tree, as APIs take them. */
function chainOf(list, title) {
    const chat = newChat({});
    chat.title = title || '';
    for (const m of list) {
        const content = Array.isArray(m.content) ? m.content.map(p => p && p.text || '').join('') : m.content;
        if (m.role === 'system' && !chat.messages.size)
            chat.system = String(content || '');
        else if (typeof m.role === 'string')
            addMessage(chat, {role: m.role.slice(0, 32), content: String(content || ''),
                              ...(m.tool_calls ? {tool_calls: m.tool_calls} : {}),
                              ...(m.tool_call_id ? {tool_call_id: m.tool_call_id} : {}),
                              ...(m.reasoning_content ? {reasoning: String(m.reasoning_content)} : {})});
    }
    return chat;
}

/* One that came from a file: its ids are new, so that nothing is overwritten. */
function withNewIds(chat) {
    const names = new Map([...chat.messages.keys()].map(id => [id, newId()]));
    const messages = new Map();
    for (const m of chat.messages.values())
        messages.set(names.get(m.id), {...m, id: names.get(m.id), parent: names.get(m.parent) || null});
    return {...chat, id: newId(), head: names.get(chat.head) || null, messages};
}

/* What a file holds: ours, one chat of ours, {messages: [...]}, or a bare list of messages.  Throws a
 * sentence. */
function chatsFromFile(text) {
    let j;
    try {
        j = JSON.parse(text);
    } catch (e) {
        throw new Error('This file is not JSON: ' + e.message);
    }
    const list = Array.isArray(j) ? (j.every(x => x && x.messages) ? j : [{messages: j}])
        : j && Array.isArray(j.chats) ? j.chats : [j];
    const chats = [];
    for (const c of list) {
        const messages = c && Array.isArray(c.messages) ? c.messages.filter(m => m && typeof m === 'object') : null;
        if (!messages)
            throw new Error('This file holds no chats: a list of messages expected');
        if (messages.length)
            chats.push(messages.every(m => typeof m.id === 'string')
                ? withNewIds(chatFromJson({created: Date.now(), ...c})) : chainOf(messages, c.title));
    }
    if (!chats.length)
        throw new Error('This file holds no chats');
    return chats;
}

/* A title as a file's name. */
function fileName(chat, end) {
    return (shorten(chat.title || 'chat', 50).replace(/[^\p{L}\p{N} _.-]+/gu, '').trim() || 'chat') + end;
}
