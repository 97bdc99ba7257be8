// page_units.js PAGE_FOLDER: the page's parts that need no browser: Markdown, trees of messages, streams,
// exports.  Run by tests/page_units.py with node.
'use strict';
const fs = require('fs');
const path = require('path');

const folder = process.argv[2];
const source = ['base', 'markdown', 'markdown_view', 'tree', 'export', 'settings']
    .map(n => fs.readFileSync(path.join(folder, n + '.js'), 'utf8')).join('');
const P = new Function(source + `return {parseMarkdown, parseInline, safeHref, EventReader, takeChunk, newChat, addMessage,
    chatFromJson, chatToJson, pathTo, siblingsOf, latestLeaf, requestOf, chatToMarkdown, chatsToJson, chatsFromFile,
    settingProblem, SETTINGS, shorten, lineStarts};`)();

let passed = 0, failed = 0;
function check(good, what) {
    good ? passed++ : failed++;
    if (!good)
        console.log('FAIL  ' + what);
}
const same = (a, b, what) => check(JSON.stringify(a) === JSON.stringify(b), what + '\n      got  ' + JSON.stringify(a) + '\n      want ' + JSON.stringify(b));

/* ---- Markdown, in short ---- */

/* Nodes as text: em(…), a[url](…). */
function inl(nodes) {
    return nodes.map(x => typeof x === 'string' ? x : x.type === 'break' ? '|' : x.type === 'code' || x.type === 'math' ? x.type + '{' + x.text + '}'
        : x.type === 'link' ? (x.image ? 'image' : 'a') + '[' + x.href + '](' + inl(x.inline) + ')' : x.type + '(' + inl(x.inline) + ')').join('');
}
function blk(b) {
    switch (b.type) {
    case 'heading': return 'h' + b.level + ':' + inl(b.inline);
    case 'code': return 'code' + (b.open ? '…' : '') + '[' + b.lang + ']:' + b.text;
    case 'quote': return '>{' + b.blocks.map(blk).join(';') + '}';
    case 'list': return (b.ordered ? b.start + '.' : '-') + '{' + b.items.map(i => i.map(blk).join(';')).join(' / ') + '}';
    case 'table': return 'table ' + b.align.map(a => a[0]).join('') + '{' + [b.head, ...b.rows].map(r => r.map(inl).join(',')).join(' / ') + '}';
    case 'math': return 'math{' + b.text + '}';
    case 'rule': return 'rule';
    default: return inl(b.inline);
    }
}
const md = text => P.parseMarkdown(text).map(blk).join(';');

for (const [text, want] of [
    ['plain', 'plain'], ['a *b* c', 'a em(b) c'], ['**b**', 'strong(b)'], ['***x***', 'em(strong(x))'], ['_a_b_', 'em(a_b)'],
    ['snake_case_name', 'snake_case_name'], ['2 * 3 * 4', '2 * 3 * 4'], ['**a *b* c**', 'strong(a em(b) c)'], ['*a', '*a'],
    ['a**', 'a**'], ['~~gone~~ ~one~', 'deleted(gone) ~one~'], ['**a*', '*em(a)'], ['`*x*`', 'code{*x*}'], ['``a`b``', 'code{a`b}'],
    ['`a', '`a'], ['\\*a\\*', '*a*'], ['a  \nb', 'a|b'], ['a\\\nb', 'a|b'], ['x<br>y', 'x|y'], ['&lt;b&gt; &#65; &bad;', '<b> A &bad;'],
    ['[t](https://x.y/z)', 'a[https://x.y/z](t)'], ['[a *b*](https://x)', 'a[https://x](a em(b))'], ['[t](<https://x/a b>)', '[t](<a[https://x/a](https://x/a) b>)'],
    ['[t](https://x "title")', 'a[https://x](t)'], ['[t](https://x/(a))', 'a[https://x/(a)](t)'], ['[t](javascript:alert(1))', '[t](javascript:alert(1))'],
    ['[t](data:text/html,x)', '[t](data:text/html,x)'], ['[t](//evil)', '[t](//evil)'], ['![p](https://x/p.png)', 'image[https://x/p.png](p)'],
    ['![p](javascript:x)', '![p](javascript:x)'], ['<https://x>', 'a[https://x](https://x)'], ['see https://x.y/a_b_c.', 'see a[https://x.y/a_b_c](https://x.y/a_b_c).'],
    ['(https://x/a)', '(a[https://x/a](https://x/a))'], ['https://x/(a)', 'a[https://x/(a)](https://x/(a))'], ['xhttps://y', 'xhttps://y'],
    ['<script>alert(1)</script>', '<script>alert(1)</script>'], ['<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>'],
    ['$a_b*c$ d', 'math{a_b*c} d'], ['costs $5 and $10', 'costs $5 and $10'], ['$5-$6', '$5-$6'], ['\\(x^2\\)', 'math{x^2}'], ['$$x$$ y', 'math{x} y'],
    ['[a [b](https://x) c](https://y)', 'a[https://y](a [b](https://x) c)'], ['[a', '[a'], ['a]', 'a]'], ['[x](', '[x]('], ['[](https://x)', 'a[https://x](https://x)'],
])
    same(md(text), want, 'inline ' + JSON.stringify(text));

for (const [text, want] of [
    ['# A\n## B ##\n#no', 'h1:A;h2:B;#no'], ['a\n\nb', 'a;b'], ['---\n***\n- - -', 'rule;rule;rule'], ['a\n---', 'a;rule'],
    ['```js\nx\n```\ny', 'code[js]:x;y'], ['```\nx', 'code…[]:x'], ['~~~~\n```\n~~~~', 'code[]:```'], ['````\n```\n````', 'code[]:```'],
    ['```a`b', '```a`b'], ['- a\n- b', '-{a / b}'], ['1. a\n2. b', '1.{a / b}'], ['3) c', '3.{c}'], ['- a\n  - b\n- c', '-{a;-{b} / c}'],
    ['1. a\n   ```\n   x\n   ```\n2. b', '1.{a;code[]:x / b}'], ['1. a\n  - b', '1.{a;-{b}}'], ['- a\n\n  b\n- c', '-{a;b / c}'], ['- a\nb', '-{a|b}'],
    ['- a\n\nb', '-{a};b'], ['- a\n1. b', '-{a};1.{b}'], ['> a\n> > b', '>{a;>{b}}'], ['>a\nb', '>{a};b'], ['text\n- a', 'text;-{a}'],
    ['year 1999. was', 'year 1999. was'], ['a\n1999. b', 'a|1999. b'], ['|a|b|\n|-|:-:|\n|1|2|', 'table lc{a,b / 1,2}'], ['a|b\n-|-:\n1|2|3\nend', 'table lr{a,b / 1,2};end'],
    ['|a|\n|-|\n|x \\| y|', 'table l{a / x | y}'], ['a|b\nc', 'a|b|c'], ['|a|b|\n|-|', '|a|b|||-|'], ['$$\nx^2\n$$', 'math{x^2}'], ['\\[\na\n\\]', 'math{a}'],
    ['$$\nnever closed', '$$|never closed'], ['- [ ] a\n- [x] b', '-{[ ] a / [x] b}'], ['+', '-{}'], ['-', '-{}'], ['', ''], ['\n\n', ''], ['\r\na\r\n\r\nb', 'a;b'],
    ['    four', '    four'], ['- ```\n  x', '-{code…[]:x}'],
])
    same(md(text), want, 'blocks ' + JSON.stringify(text));

for (const bad of ['javascript:x', 'JAVASCRIPT:x', ' javascript:x', 'java\nscript:x', 'vbscript:x', 'file:///etc', 'data:x', '', 'https://', '/a', '#a', 'x'.repeat(5000)])
    check(P.safeHref(bad) === null, 'no link to ' + bad.slice(0, 20));

/* A text that arrives in pieces ends as the whole does: its last block alone is parsed anew, from where
 * it begins. */
const sample = '# T\n\npara *a*\nb\n\n- x\n  - y\n\n  z\n1. q\n\n> quo\n> te\n\n|a|b|\n|-|-|\n|1|2|\n\n```c\nint x;\n\ny\n```\ntail $x$\n\n$$\nm\n$$\n---\nlast';
for (const newline of ['\n', '\r\n']) {
    const text = sample.replace(/\n/g, newline), whole = P.parseMarkdown(text).map(blk);
    let from = 0, done = [];
    for (let n = 1; n <= text.length; n++) {
        const tail = text.slice(from, n), blocks = P.parseMarkdown(tail);
        if (!blocks.length)
            continue;
        done.push(...blocks.slice(0, -1).map(blk));
        from += P.lineStarts(tail, blocks[blocks.length - 1].line);
    }
    done.push(...P.parseMarkdown(text.slice(from)).map(blk));
    same(done, whole, 'in pieces as whole');
}

/* ---- nasty texts: time linear, depth bounded ---- */

function depth(x) {
    let most = 0;
    for (const y of Array.isArray(x) ? x : x && typeof x === 'object' ? [x.inline, x.blocks, x.items, x.rows, x.head].filter(Boolean) : [])
        most = Math.max(most, depth(y));
    return most + (x && !Array.isArray(x) && typeof x === 'object' ? 1 : 0);
}

const NASTY = ['*', '_', '`', '~', '[', ']', '](', '[](', '[a](', '[a](b "', '![', '<', '<a', '<https://', '$', '$$', '\\(', '\\[', '\\', '|', '|-', '> ', '- ', '* ', '1. ',
    '#', '# ', '&', '&#', '*a ', '**a ', 'a*', '*a*', '**a** ', '_a_', '`a', '``a`', '(', '()', '[[](', 'https://', 'https://x ', 'https://x(', '"', '[x](y(', ' ', '\t', 'h',
    '\n', '\n\n', '> \n', '- \n', '1. a\n', '  - a\n', '|a|\n', '|-|\n', '|a|\n|-|\n', '```\n', '```', '~~~\n', '$$\n', '\\[\n', '\\[ a\n', '#\n', '---\n', 'a  \n', 'x\n',
    '*a **b ', '~~a ', '[a] ', '[a][', '\u0000', '\ud800', '😀', '- - ', '> - ', '-\n  ', ' -\n', '&amp;', '[^1]'];
/* Eight times as long may take eight times the time; it is the process's own, and where it looks too much
 * the better of three runs counts: garbage is collected when it pleases. */
const SIZE = 1 << 20;
let slow = '', deep = '';
const timed = text => {
    const start = process.cpuUsage(), tree = P.parseMarkdown(text), used = process.cpuUsage(start);
    return [(used.user + used.system) / 1000, tree];
};
const isSlow = (small, large) => large > 300 && large > 8 * 4 * Math.max(small, 10);
for (const unit of NASTY) {
    const short = unit.repeat(SIZE / 8 / unit.length), long = unit.repeat(SIZE / unit.length);
    const [small] = timed(short);
    let [large, tree] = timed(long);
    for (let i = 0; i < 2 && isSlow(small, large); i++)
        large = Math.min(large, timed(long)[0]);
    if (isSlow(small, large))
        slow += JSON.stringify(unit) + ' ' + small.toFixed(0) + ' -> ' + large.toFixed(0) + ' ms; ';
    if (depth(tree) > 60)
        deep += JSON.stringify(unit) + ' ';
}
check(!slow, 'linear time: ' + slow);
check(!deep, 'bounded depth: ' + deep);
const nested = Array.from({length: 3000}, (_, i) => ' '.repeat(2 * i) + '- a').join('\n');
const [ms, tree] = timed(nested + '\n' + '> '.repeat(5000) + 'x\n' + '[a '.repeat(20000) + '](https://x)'.repeat(20000));
check(ms < 20000 && depth(tree) < 60, 'nested 3000 deep: ' + ms.toFixed(0) + ' ms, depth ' + depth(tree));

/* Random soups of what means something: nothing throws, nothing is lost but marks. */
let seed = 1;
const random = n => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
let broke = '';
for (let i = 0; i < 3000; i++) {
    const text = Array.from({length: random(30)}, () => random(3) ? NASTY[random(NASTY.length)] : 'word').join('');
    try {
        const back = JSON.stringify(P.parseMarkdown(text));
        if ((text.match(/word/g) || []).length > (back.match(/word/g) || []).length + (text.match(/```|~~~|\|/g) || []).length * 30 + 3 * (text.match(/\]\(|"/g) || []).length)
            broke = 'words lost in ' + JSON.stringify(text);
    } catch (e) {
        broke = e.message + ' in ' + JSON.stringify(text);
    }
}
check(!broke, 'random texts: ' + broke);

/* ---- trees ---- */

const chat = P.newChat({});
const q1 = P.addMessage(chat, {role: 'user', content: 'one'});
const a1 = P.addMessage(chat, {role: 'assistant', content: 'first', reasoning: 'hm'});
chat.head = q1.id;
const a2 = P.addMessage(chat, {role: 'assistant', content: 'second'});
const q2 = P.addMessage(chat, {role: 'user', content: 'two'});
same(P.pathTo(chat, chat.head).map(m => m.content), ['one', 'second', 'two'], 'the path to the head');
same(P.siblingsOf(chat, a1).map(m => m.content), ['first', 'second'], 'versions in their order');
same(P.latestLeaf(chat, a2.id), q2.id, 'down by the newest');
same(P.latestLeaf(chat, a1.id), a1.id, 'a leaf is its own');
chat.system = 'be brief';
chat.settings = {temperature: 0, stop: 'A\n\nB', thinking: 'off', top_k: '', seed: undefined};
const body = P.requestOf(chat, q2.id, 'm');
same(body.messages, [{role: 'system', content: 'be brief'}, {role: 'user', content: 'one'}, {role: 'assistant', content: 'second'},
                     {role: 'user', content: 'two'}], 'what is sent');
same([body.temperature, body.stop, body.chat_template_kwargs, 'top_k' in body, 'seed' in body, body.model, body.stream],
     [0, ['A', 'B'], {enable_thinking: false}, false, false, 'm', true], 'with the settings');
same(P.chatFromJson(JSON.parse(JSON.stringify(P.chatToJson(chat)))).messages.get(a1.id).reasoning, 'hm', 'there and back');
const circle = P.chatFromJson({id: 'x', messages: [{id: 'a', parent: 'b', role: 'user', content: ''}, {id: 'b', parent: 'a', role: 'user'}], head: 'a'});
check(P.pathTo(circle, 'a').length === 2, 'a circle ends');
P.latestLeaf(circle, 'a');
for (const j of [{}, {messages: 1}, {messages: [1, null, {id: 1}]}, {messages: [{id: 'a', role: 'user', content: {}}], head: 'zz', title: 7}])
    check(P.chatFromJson(j).messages instanceof Map, 'broken chats are read: ' + JSON.stringify(j));

/* ---- streams ---- */

const wire = ': 3 of 9 prompt tokens read\n\ndata: {"a":1}\r\n\r\ndata: x\ndata: y\n\ndata:[DONE]\n\n';
for (const size of [1, 2, 3, 7, 1000]) {
    const r = new P.EventReader(), got = [];
    for (let i = 0; i < wire.length; i += size)
        got.push(...r.push(wire.slice(i, i + size)));
    same(got, [{comment: '3 of 9 prompt tokens read'}, {data: '{"a":1}'}, {data: 'x\ny'}, {data: '[DONE]'}], 'events in pieces of ' + size);
}
const m = {content: ''};
P.takeChunk(m, {choices: [{delta: {role: 'assistant', content: null}}]});
P.takeChunk(m, {choices: [{delta: {reasoning_content: 'th'}}]});
P.takeChunk(m, {choices: [{delta: {content: 'he'}}]});
P.takeChunk(m, {choices: [{delta: {tool_calls: [{index: 0, id: 'c', function: {name: 'f', arguments: '{"a"'}}]}}]});
P.takeChunk(m, {choices: [{delta: {tool_calls: [{index: 0, function: {arguments: ':1}'}}]}}]});
P.takeChunk(m, {choices: [{delta: {}, finish_reason: 'tool_calls'}]});
P.takeChunk(m, {choices: [], usage: {completion_tokens: 3}, timings: {predicted_per_second: 9}});
same(m, {content: 'he', reasoning: 'th', tool_calls: [{id: 'c', type: 'function', function: {name: 'f', arguments: '{"a":1}'}}], finish: 'tool_calls',
         usage: {completion_tokens: 3}, timings: {predicted_per_second: 9}}, 'chunks become a message');
let threw = '';
try {
    P.takeChunk(m, {error: {message: 'no'}});
} catch (e) {
    threw = e.message;
}
same(threw, 'no', 'errors in a stream');

/* ---- files ---- */

chat.title = 'A <b>title</b>';
const back = P.chatsFromFile(P.chatsToJson([chat]));
check(back.length === 1 && back[0].messages.size === 4 && back[0].title === chat.title && back[0].id !== chat.id, 'exported and imported');
same(P.pathTo(back[0], back[0].head).map(x => x.content), ['one', 'second', 'two'], 'with its branches');
same(P.chatsFromFile('[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]}]').map(c => [c.system, [...c.messages.values()].map(x => x.content)]),
     [['s', ['hi']]], 'a bare list of messages');
for (const bad of ['', '{', '{}', '[]', '[1]', '{"chats":[]}', '{"messages":1}', 'null'])
    try {
        P.chatsFromFile(bad);
        check(false, 'no chats in ' + bad);
    } catch (e) {
        check(e.message.includes('This file'), 'a sentence for ' + bad + ': ' + e.message);
    }
const text = P.chatToMarkdown(chat);
check(text.startsWith('# A <b>title</b>\n') && text.includes('second') && !text.includes('first'), 'Markdown of the path');

/* ---- settings ---- */

const setting = name => P.SETTINGS.find(s => s.name === name);
for (const [name, value, good] of [['temperature', '0.5', true], ['temperature', '-1', false], ['temperature', 'hot', false], ['temperature', '', true], ['top_k', '1.5', false],
    ['top_k', '-1', true], ['tools', '[', false], ['tools', '{}', false], ['tools', '[]', true], ['stop', 'x', true], ['seed', '1e400', false]])
    check((P.settingProblem(setting(name), value) === '') === good, 'setting ' + name + ' ' + value);
check(P.SETTINGS.every(s => s.like && s.what && s.label), 'every setting is explained');

console.log(passed + ' passed, ' + failed + ' failed');
process.exit(failed ? 1 : 0);
