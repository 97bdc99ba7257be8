// settings.js - what can be said with each request, and what it means.  An empty field says nothing: the
// server's value holds.  The list makes the form, the explanations and the request.

const plain = name => (body, value) => body[name] = value;

/* name: in the chat's settings.  range: [least, most, step].  like: an everyday picture of it.  what: how
 * it works.  server: its place among /props' values. */
const SETTINGS = [
    {name: 'temperature', label: 'Temperature', kind: 'number', range: [0, 5, 0.05], server: 'temperature',
     like: 'How daring the model is. At 0 it always takes the safest next word; near 1 it speaks freely; far above, it rambles.',
     what: 'The scores of all next tokens are divided by it before they become probabilities. At 0 the likeliest token is taken, and the same question always gets the same answer.',
     put: plain('temperature')},
    {name: 'top_p', label: 'Top P', kind: 'number', range: [0, 1, 0.01], server: 'top_p',
     like: 'Choose only among the favourites that together hold most of the votes.',
     what: 'Tokens are taken from the likeliest down until their probabilities add up to P; the others are dropped. 1 keeps all.',
     put: plain('top_p')},
    {name: 'top_k', label: 'Top K', kind: 'integer', range: [-1, 100000, 1], server: 'top_k',
     like: 'A short list with K places.',
     what: 'Only the K likeliest tokens stay in the draw. 0 or −1 keeps all.',
     put: plain('top_k')},
    {name: 'min_p', label: 'Min P', kind: 'number', range: [0, 1, 0.01], server: 'min_p',
     like: 'Drop the outsiders, measured by the favourite: the surer the model is, the fewer stay.',
     what: 'A token stays only if it is at least this part as likely as the likeliest one.',
     put: plain('min_p')},
    {name: 'repeat_penalty', label: 'Repeat penalty', kind: 'number', range: [0.5, 3, 0.01], server: 'repeat_penalty',
     like: 'A gentle reminder: you have said that already.',
     what: 'The scores of tokens that stand in the last part of the text are divided by it. 1 does nothing; above 1.2 ordinary words begin to go missing.',
     put: plain('repeat_penalty')},
    {name: 'presence_penalty', label: 'Presence penalty', kind: 'number', range: [-2, 2, 0.05],
     like: 'An invitation to change the subject.',
     what: 'Taken off the score of every token that has been used, once, however often it was.',
     put: plain('presence_penalty')},
    {name: 'frequency_penalty', label: 'Frequency penalty', kind: 'number', range: [-2, 2, 0.05],
     like: 'The oftener a word was used, the dearer it gets.',
     what: 'Taken off the score of every token as many times as it has been used.',
     put: plain('frequency_penalty')},
    {name: 'max_tokens', label: 'Longest answer', kind: 'integer', range: [1, 10000000, 1], hint: 'no limit',
     like: 'A page that is full.',
     what: 'The answer is cut after so many tokens; a token is about three quarters of an English word. Without it the model ends by itself, or where its context is full.',
     put: plain('max_tokens')},
    {name: 'seed', label: 'Seed', kind: 'integer', range: [0, 9007199254740991, 1], hint: 'random',
     like: 'The order in which the cards lie: the same order deals the same hand.',
     what: 'Where the random numbers begin. The same seed, settings and messages give the same answer, whatever else the server does meanwhile.',
     put: plain('seed')},
    {name: 'stop', label: 'Stop texts', kind: 'lines', hint: 'one on each line',
     like: 'A word at which the speaker sits down.',
     what: 'The answer ends before the first of these texts would appear. At most 16.',
     put: (body, value) => body.stop = value.split('\n').filter(Boolean).slice(0, 16)},
    {name: 'thinking', label: 'Thinking', kind: 'choice',
     choices: [['', 'as the model likes'], ['on', 'on'], ['off', 'off']],
     like: 'Whether the model may use scrap paper before it answers.',
     what: 'Sets enable_thinking for the model’s chat template. Models that cannot think, or always do, do not look at it. Thinking is shown folded, and is not sent back with the next question.',
     put: (body, value) => body.chat_template_kwargs = {enable_thinking: value === 'on'}},
    {name: 'tools', label: 'Tools', kind: 'json', hint: '[{"type": "function", "function": {…}}]',
     like: 'The telephone numbers on the model’s desk. It can only ask to call one; you decide what it hears.',
     what: 'A list of tools in OpenAI’s form. A call is shown in the chat, and you type or paste its result.',
     put: (body, value) => body.tools = JSON.parse(value)},
];

/* What is wrong with a value as it was typed, or ''. */
function settingProblem(s, text) {
    if (text === '' || s.kind === 'lines' || s.kind === 'choice')
        return '';
    if (s.kind === 'json') {
        try {
            const j = JSON.parse(text);
            return Array.isArray(j) ? '' : 'A list is expected: [ … ]';
        } catch (e) {
            return 'This is not JSON: ' + e.message;
        }
    }
    const n = Number(text);
    if (!Number.isFinite(n) || (s.kind === 'integer' && !Number.isInteger(n)))
        return s.kind === 'integer' ? 'A whole number is expected' : 'A number is expected';
    return n < s.range[0] || n > s.range[1] ? s.range[0] + ' to ' + s.range[1] + ' is expected' : '';
}

function settingValue(s, text) {
    return text === '' ? undefined : s.kind === 'number' || s.kind === 'integer' ? Number(text) : text;
}

class SettingsForm {
    /* changed(): a value is new. */
    constructor(element, changed) {
        this.changed = changed;
        this.fields = new Map();
        this.system = h('textarea', {id: 'system', rows: '4', dir: 'auto',
                                     placeholder: 'You are a helpful assistant.', oninput: () => this.save()});
        element.append(
            this.row('system', 'System prompt', this.system,
                     'The stage direction, read before every conversation.',
                     'Stands before the first message. Models differ in how closely they follow it.', ''),
            h('h3', null, 'Sampling'),
            ...SETTINGS.slice(0, 10).map(s => this.field(s)),
            h('h3', null, 'Thinking and tools'),
            ...SETTINGS.slice(10).map(s => this.field(s)),
            h('div', {class: 'row-buttons'},
              textButton('Reset this chat’s settings', 'quiet', () => this.reset()),
              textButton('Use for new chats', 'quiet', () => this.keep())));
    }

    field(s) {
        const props = {id: 'set-' + s.name, 'aria-describedby': 'set-' + s.name + '-note',
                       oninput: () => this.save()};
        let input;
        if (s.kind === 'choice')
            input = h('select', props, s.choices.map(([value, text]) => h('option', {value}, text)));
        else if (s.kind === 'lines' || s.kind === 'json')
            input = h('textarea', {...props, rows: s.kind === 'json' ? '4' : '2', placeholder: s.hint,
                                   spellcheck: 'false'});
        else
            input = h('input', {...props, type: 'text', inputmode: s.kind === 'integer' ? 'numeric' : 'decimal',
                                autocomplete: 'off', placeholder: s.hint});
        this.fields.set(s.name, {s, input});
        return this.row('set-' + s.name, s.label, input, s.like, s.what, s.kind);
    }

    /* The mark left of the label opens the explanation under it. */
    row(id, label, input, like, what, kind) {
        const help = h('div', {class: 'help', id: id + '-help', hidden: true},
                       h('p', null, like), h('p', null, what));
        const mark = iconButton('info', 'What ' + label + ' means', () => {
            help.hidden = !help.hidden;
            mark.setAttribute('aria-expanded', String(!help.hidden));
        }, {'aria-expanded': 'false', 'aria-controls': id + '-help', class: 'icon-button small'});
        return h('div', {class: 'setting ' + kind}, h('div', {class: 'setting-head'}, mark,
                 h('label', {for: id}, label)), input,
                 h('p', {class: 'problem', id: id + '-note', role: 'alert'}), help);
    }

    /* defaults: the server's, for the empty fields. */
    show(chat, defaults) {
        this.chat = chat;
        this.system.value = chat.system;
        for (const {s, input} of this.fields.values()) {
            const value = chat.settings[s.name], given = defaults && s.server ? defaults[s.server] : undefined;
            input.value = value === undefined || value === null ? '' : value;
            if (given !== undefined)
                input.placeholder = String(Math.round(given * 1000) / 1000);
            this.complain(s, input);
        }
    }

    complain(s, input) {
        const problem = settingProblem(s, input.value.trim());
        $('set-' + s.name + '-note').textContent = problem;
        input.setAttribute('aria-invalid', String(problem !== ''));
        return problem;
    }

    /* A value that is wrong is not kept: what was there before holds. */
    save() {
        this.chat.system = this.system.value;
        const settings = {...this.chat.settings};
        for (const {s, input} of this.fields.values()) {
            const text = s.kind === 'lines' ? input.value : input.value.trim();
            if (!this.complain(s, input))
                settings[s.name] = settingValue(s, text);
        }
        this.chat.settings = settings;
        this.changed();
    }

    reset() {
        this.chat.settings = {};
        this.chat.system = '';
        this.show(this.chat);
        this.changed();
        announce('Settings reset');
    }

    keep() {
        memory.set('settings', JSON.stringify({system: this.chat.system, settings: this.chat.settings}));
        announce('New chats begin with these settings');
        $('notice').textContent = 'New chats begin with these settings.';
    }
}

function keptSettings() {
    try {
        return JSON.parse(memory.get('settings')) || {};
    } catch (e) {
        return {};
    }
}
