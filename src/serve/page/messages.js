// messages.js - a message as it is shown: thinking folded, Markdown, calls, what can be done with it.

const WHO = {user: 'You', assistant: 'Answer', tool: 'Result of a tool', system: 'System'};
const FINISH = {
    length: 'Cut here: the answer reached the longest that the settings or the context allow.',
    stopped: 'Stopped here.',
    content_filter: 'Cut here by the server.',
};

class MessageView {
    constructor(chat, message) {
        this.chat = chat;
        this.message = message;
        this.live = false; // being written
        this.body = h('div', {class: 'body'});
        this.notes = h('div', {class: 'notes'});
        this.tools = h('div', {class: 'message-tools'});
        this.element = h('article', {class: 'message ' + (WHO[message.role] ? message.role : 'other'),
                                     id: 'm-' + message.id, 'aria-labelledby': 'who-' + message.id},
                         h('h2', {class: 'who', id: 'who-' + message.id}, this.who()),
                         this.body, this.notes, this.tools);
        this.fill();
    }

    who() {
        const m = this.message;
        return m.role === 'assistant' && m.model ? m.model : WHO[m.role] || m.role;
    }

    fill() {
        const m = this.message;
        this.body.replaceChildren();
        this.markdown = this.thinking = null;
        if (m.role === 'assistant') {
            this.grow();
        } else if (m.role === 'tool') {
            this.body.append(h('pre', {class: 'result', tabindex: '0'}, m.content));
        } else {
            this.body.append(h('div', {class: 'said', dir: 'auto'}, m.content));
        }
        this.finish();
    }

    /* The answer has more to show.  Costly texts are drawn less often: see app.draw. */
    grow() {
        const m = this.message;
        if (m.reasoning && !this.thinking)
            this.addThinking();
        if (this.thinking) {
            this.thinking.update(m.reasoning);
            this.summary.textContent = this.thinkingTitle();
        }
        if (m.content && !this.markdown) {
            const e = h('div', {class: 'md'});
            this.body.append(e);
            this.markdown = new MarkdownView(e);
        }
        if (m.content)
            this.markdown.update(m.content);
        this.showWait();
    }

    addThinking() {
        const text = h('div', {class: 'md thoughts'});
        this.summary = h('summary', null, this.thinkingTitle());
        this.body.prepend(h('details', {class: 'thinking'}, this.summary, text));
        this.thinking = new MarkdownView(text);
    }

    thinkingTitle() {
        const m = this.message, words = formatCount(m.reasoning.split(/\s+/).length) + ' words';
        return this.live && !m.content && !m.tool_calls ? 'Thinking, ' + words + ' so far' : 'Thought for ' + words;
    }

    /* Until the first text comes: that it will, and what the server says meanwhile. */
    showWait() {
        const m = this.message, waits = this.live && !m.content && !m.reasoning && !m.tool_calls;
        if (waits && !this.wait)
            this.body.append(this.wait = h('div', {class: 'wait'}, h('span', {class: 'dots'}, h('i'), h('i'), h('i')),
                                           h('span', {class: 'wait-text'})));
        const g = generations.get(this.chat.id);
        if (waits)
            this.wait.lastChild.textContent = g ? g.waits : '';
        else if (this.wait)
            this.wait = this.wait.remove();
    }

    /* What stands under a message that is complete (or as complete as it gets). */
    finish() {
        const m = this.message;
        this.element.classList.toggle('live', this.live);
        this.element.setAttribute('aria-busy', String(this.live));
        if (this.thinking)
            this.summary.textContent = this.thinkingTitle();
        this.showWait();
        this.notes.replaceChildren();
        this.body.querySelectorAll('.call').forEach(e => e.remove());
        if (m.role === 'assistant')
            for (const call of m.tool_calls || [])
                this.body.append(this.callNode(call));
        if (this.live)
            return this.tools.replaceChildren();
        if (m.error)
            this.notes.append(h('div', {class: 'error', role: 'alert'}, h('span', null, m.error),
                                textButton('Try again', null, () => app.regenerate(m))));
        else if (m.role === 'assistant' && m.finish !== 'stop' && m.finish !== 'tool_calls')
            this.notes.append(h('p', null, FINISH[m.finish] ||
                                           (m.finish ? 'Ended: ' + m.finish : 'This answer was interrupted.')));
        else if (m.role === 'assistant' && !m.content && !m.tool_calls)
            this.notes.append(h('p', null, 'The model answered nothing.'));
        this.fillTools();
    }

    callNode(call) {
        const m = this.message, answered = childrenOf(this.chat, m.id).length || this.live;
        const parts = [h('div', {class: 'call-head'}, icon('tool'), h('span', null, 'Calls '),
                         h('b', null, call.function.name || '…')),
                       h('pre', {tabindex: '0', 'aria-label': 'Arguments'}, prettyJson(call.function.arguments))];
        if (!answered) {
            const id = 'result-' + m.id + '-' + call.id;
            parts.push(h('label', {for: id}, 'What the tool answers'),
                       h('textarea', {id, rows: '2', 'data-call': call.id}),
                       h('div', {class: 'row-buttons'},
                         textButton('Send the result', 'primary', () => this.sendResults())));
        }
        return h('div', {class: 'call'}, parts);
    }

    /* Of all calls of the message together: a model expects an answer to each. */
    sendResults() {
        const fields = [...this.body.querySelectorAll('textarea[data-call]')];
        app.sendResults(this.message, fields.map(f => ({id: f.dataset.call, text: f.value})));
    }

    fillTools() {
        const m = this.message, all = siblingsOf(this.chat, m), i = all.findIndex(x => x.id === m.id);
        const tools = [];
        if (all.length > 1)
            tools.push(h('span', {class: 'branches', role: 'group', 'aria-label': 'Versions of this message'},
                iconButton('left', 'Version before', () => app.showBranch(all[i - 1]), {disabled: i === 0}),
                h('span', {'aria-label': 'Version ' + (i + 1) + ' of ' + all.length}, (i + 1) + '/' + all.length),
                iconButton('right', 'Version after', () => app.showBranch(all[i + 1]),
                           {disabled: i === all.length - 1})));
        const copy = iconButton('copy', 'Copy', () => copyText(m.content, copy));
        tools.push(copy);
        if (m.role === 'user' || m.role === 'assistant')
            tools.push(iconButton('edit', 'Edit', () => this.edit()));
        if (m.role === 'assistant')
            tools.push(iconButton('again', 'Answer again', () => app.regenerate(m)));
        tools.push(iconButton('branch', 'Go on in a new chat from here', () => app.fork(m)));
        if (m.role === 'assistant' && this.numbers())
            tools.push(h('span', {class: 'numbers'}, this.numbers()));
        this.tools.replaceChildren(...tools);
    }

    numbers() {
        const t = this.message.timings, u = this.message.usage;
        const out = [], cached = u && u.prompt_tokens_details ? u.prompt_tokens_details.cached_tokens : 0;
        if (t && t.predicted_per_second > 0)
            out.push(formatRate(t.predicted_per_second) + ' tokens/s');
        if (u)
            out.push(formatCount(u.completion_tokens) + ' tokens');
        if (cached > 0)
            out.push(formatCount(cached) + ' of ' + formatCount(u.prompt_tokens) + ' read before');
        return out.join(' · ');
    }

    edit() {
        const m = this.message;
        const field = h('textarea', {dir: 'auto', 'aria-label': 'Edit the message', value: m.content});
        const end = () => {
            this.fill();
            this.tools.querySelector('button[aria-label="Edit"]').focus();
        };
        const save = () => app.saveEdit(m, field.value);
        field.addEventListener('keydown', e => {
            if (e.key === 'Escape') {
                e.stopPropagation();
                end();
            } else if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
                e.preventDefault();
                save();
            }
        });
        this.body.replaceChildren(h('div', {class: 'editor'}, field, h('div', {class: 'row-buttons'},
            textButton('Cancel', 'quiet', end),
            textButton(m.role === 'user' ? 'Send' : 'Keep as a new version', 'primary', save))));
        this.tools.replaceChildren();
        this.markdown = this.thinking = null;
        fitHeight(field);
        field.addEventListener('input', () => fitHeight(field));
        field.focus();
    }
}

/* As high as its text, within what the style allows. */
function fitHeight(field) {
    field.style.height = 'auto';
    field.style.height = field.scrollHeight + 2 + 'px';
}
