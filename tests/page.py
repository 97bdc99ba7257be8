#!/usr/bin/env python3
"""page.py LODE [--shots FOLDER] [--only NAME]: the server's web page in a headless Chromium, as a person
uses it: asks, stops, edits, goes between versions, searches, deletes, exports; by keyboard alone and on a
phone's screen; with texts that try to become markup; when the server goes away.  Skipped without Chromium
(Debian: chromium)."""
import json
import os
import socket
import sys
import tempfile
import time

import browser
from browser import Browser, Failed
from lodetest import Count
from verb_serve import Server

EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"\'>&lt;b&gt; {{7*7}} `</code>'
SLOW = 'Tell me a long story about a lighthouse, a ship, a storm and a cat.'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Page:
    """A tab with the page in it, and what tests do there."""

    def __init__(self, b, url, width=1280, height=800):
        self.tab = b.tab(width, height)
        self.url = url
        self.tab.go(url)
        self.tab.wait("document.querySelector('.welcome, .message')")

    def __getattr__(self, name):
        return getattr(self.tab, name)

    def say(self, text, wait=True):
        self.tab.js("document.getElementById('input').focus()")
        self.tab.type(text)
        self.tab.key('Enter')
        if wait:
            self.done()

    def say_and_see(self, text):
        """Until the answer is under way; it goes on to the context's end, however fast the machine is."""
        self.tab.js("""(() => {
            const real = window.fetch;
            window.fetch = (to, how) => {
                if (!String(to).includes('/v1/chat/completions'))
                    return real(to, how);
                window.fetch = real;
                return real(to, {...how, body: JSON.stringify({...JSON.parse(how.body), ignore_eos: true})});
            };
        })()""")
        self.say(text, wait=False)
        self.tab.wait("document.querySelector('.live .md')")

    def done(self):
        """Until the answer is there."""
        self.tab.wait("document.querySelector('.message.assistant') && !document.querySelector('.live')", 120)

    def stored(self):
        """Until nothing waits to be stored (the hash is set by the first save)."""
        self.tab.wait("location.hash.length > 1")
        self.tab.js("new Promise(r => setTimeout(r, 150))")

    def texts(self, selector):
        return self.tab.js("[...document.querySelectorAll(%s)].map(e => e.textContent)" % json.dumps(selector))

    def last(self):
        return self.texts('.message.assistant .body')[-1]

    def said(self):
        return self.texts('.message.user .said')

    def menu(self, chat, item):
        self.tab.click('#chats a[data-chat="%s"] + button' % chat)
        self.tab.js("[...document.querySelectorAll('#menu button')].find(b => b.textContent == %s).click()" % json.dumps(item))

    def put(self, chat, body):
        """Straight to the server, past the page."""
        return self.tab.js("fetch('/lode/chats/%s', {method: 'PUT', body: %s}).then(r => r.status)"
                           % (chat, json.dumps(json.dumps(dict(body, new=True)))))

    def get(self, chat):
        return self.tab.js("fetch('/lode/chats/%s').then(r => r.ok ? r.json() : null)" % chat)

    def chat(self):
        return self.tab.js('location.hash.slice(1)')

    def set(self, name, value):
        self.tab.js("""(() => { const e = document.getElementById('%s'); e.value = %s;
                       e.dispatchEvent(new Event('input', {bubbles: true})); })()""" % (name, json.dumps(value)))


def message(id, parent, role, content, **more):
    return dict(id=id, parent=parent, role=role, content=content, finish='stop', **more)


# ---- what people do ----

def check_talk(count, p):
    p.say('Tell me about a cat.')
    count.check(len(p.last()) > 10 and p.said() == ['Tell me about a cat.'], 'an answer')
    count.check('tokens/s' in p.texts('.numbers')[-1], 'with its numbers')
    p.stored()
    chat, answer = p.chat(), p.last()
    count.check(p.texts('#chats .chat-title')[0] == 'Tell me about a cat.', 'the chat stands in the list')
    p.reload()
    p.wait("document.querySelector('.message.assistant .md')")
    count.check(p.last() == answer and p.chat() == chat, 'and is there after a reload')

    p.say('Go on.')
    count.check(len(p.texts('.message')) == 4, 'a second question')
    p.click('.message.assistant:last-of-type button[aria-label="Answer again"]')
    p.done()
    p.wait("[...document.querySelectorAll('.branches')].some(e => e.textContent == '2/2')")
    count.check(True, 'another answer is a second version')
    p.click('.message:last-of-type button[aria-label="Version before"]')
    p.wait("[...document.querySelectorAll('.branches')].some(e => e.textContent == '1/2')")
    count.check(p.js("document.activeElement.closest('.branches') != null"), 'and back to the first, focus kept')
    p.click('.message.user button[aria-label="Edit"]')
    p.js("document.querySelector('.editor textarea').select()")
    p.type('Tell me about a dog.')
    p.key('Enter', 2)
    p.done()
    count.check(p.said() == ['Tell me about a dog.'] and '2/2' in p.texts('.branches'), 'an edited question is a branch')
    p.click('.message.user button[aria-label="Version before"]')
    p.wait("document.querySelectorAll('.message').length == 4")
    count.check(p.said()[0] == 'Tell me about a cat.', 'the old branch is whole')
    p.js("new Promise(r => setTimeout(r, 300))")
    p.reload()
    p.wait("document.querySelectorAll('.message').length == 4")
    count.check(p.said()[0] == 'Tell me about a cat.', 'the server knows which branch is shown')
    stored = p.get(chat)
    count.check(len(stored['messages']) == 7 and stored['head'], 'all versions are stored')
    p.click('.message.assistant button[aria-label="Go on in a new chat from here"]')
    p.wait("location.hash.slice(1) != '%s'" % chat)
    count.check(p.js("document.querySelectorAll('.message').length") == 2, 'a new chat from the middle')


def check_stop(count, p):
    p.click('#new-chat')
    p.set('set-max_tokens', '')
    p.say_and_see(SLOW)
    count.check(p.js("document.getElementById('send').getAttribute('aria-label')") == 'Stop', 'the button stops')
    count.check(p.js("document.querySelector('.live').getAttribute('aria-busy')") == 'true', 'a growing answer is busy')
    p.key('Escape')
    p.done()
    count.check('Stopped here.' in ''.join(p.texts('.notes')), 'Escape stops it')
    count.check(p.js("fetch('/lode/status').then(r => r.json()).then(s => s.work.running)") == 0
                or not p.tab.wait("fetch('/lode/status').then(r => r.json()).then(s => s.work.running == 0)") is None,
                'on the server too')
    p.say(SLOW, wait=False)  # an answer that does not end before it is stopped
    p.wait("document.querySelector('.live')")
    p.click('#send')
    p.done()
    p.stored()
    stopped = p.last()
    p.reload()
    p.wait("document.querySelectorAll('.message').length == 4")
    count.check(p.last() == stopped, 'what had come is kept')


def check_list(count, p):
    p.put('listed', {'title': 'To be renamed', 'messages': [message('a', None, 'user', 'the zanzibar word')], 'head': 'a'})
    p.reload()
    p.wait("document.querySelector('#chats a[data-chat=listed]')")
    p.menu('listed', 'Rename')
    p.wait("document.querySelector('dialog[open]')")
    p.type('Renamed <b>so</b>')
    p.key('Enter')
    p.wait("document.querySelector('#chat-listed .chat-title').textContent == 'Renamed <b>so</b>'")
    count.check(p.get('listed')['title'] == 'Renamed <b>so</b>', 'a chat renamed')
    p.click('#search')
    p.type('ZANZIBAR')
    p.wait("document.querySelectorAll('#chats a').length == 1 && document.querySelector('#chats mark')")
    count.check(p.texts('#chats mark') == ['zanzibar'], 'a search shows what it found')
    p.js("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
    p.wait("document.querySelectorAll('#chats a').length > 1")
    p.menu('listed', 'Delete')
    p.wait("document.querySelector('dialog[open]')")
    count.check(p.js("document.activeElement.id") == 'dialog-cancel', 'deleting is not the default')
    p.key('Escape')
    count.check(p.get('listed') is not None, 'no is no')
    p.menu('listed', 'Delete')
    p.click('#dialog-ok')
    p.wait("!document.querySelector('#chats a[data-chat=listed]')")
    count.check(p.get('listed') is None, 'a chat deleted')


def check_files(count, p):
    p.put('file1', {'title': 'For a file', 'system': 'be', 'settings': {'seed': 4}, 'head': 'c', 'messages': [
        message('a', None, 'user', 'q'), message('b', 'a', 'assistant', 'first'), message('c', 'a', 'assistant', 'second')]})
    p.reload()
    p.wait("document.querySelector('#chats a[data-chat=file1]')")
    p.js("""(() => { window.files = []; URL.createObjectURL = blob => { blob.text().then(t => files.push(t)); return 'blob:x'; };
             HTMLAnchorElement.prototype.click = function () { this.download || this.dispatchEvent(new MouseEvent('click')); }; })()""")
    p.menu('file1', 'Export as Markdown')
    p.wait('files.length == 1')
    count.check(p.js('files[0]').startswith('# For a file\n') and 'second' in p.js('files[0]'), 'exported as Markdown')
    p.menu('file1', 'Export as JSON')
    p.wait('files.length == 2')
    before = p.js("document.querySelectorAll('#chats a').length")
    p.js("""(() => { const d = new DataTransfer(); d.items.add(new File([files[1]], 'x.json'));
             document.getElementById('file').files = d.files; document.getElementById('file').dispatchEvent(new Event('change')); })()""")
    p.wait("document.querySelectorAll('#chats a').length == %d" % (before + 1))
    ids = p.js("[...document.querySelectorAll('#chats a')].filter(e => e.textContent == 'For a file').map(e => e.dataset.chat)")
    chats = [p.get(i) for i in ids]
    count.check(len(ids) == 2 and [m['content'] for m in chats[0]['messages']] == [m['content'] for m in chats[1]['messages']]
                and chats[0]['settings'] == chats[1]['settings'] == {'seed': 4}, 'JSON comes back whole, beside the first')
    p.js("""(() => { const d = new DataTransfer(); d.items.add(new File(['{'], 'x.json'));
             document.getElementById('file').files = d.files; document.getElementById('file').dispatchEvent(new Event('change')); })()""")
    p.wait("document.getElementById('notice').textContent.includes('not JSON')")
    count.check(True, 'a file that holds no chats is named')


def check_settings(count, p):
    p.click('#new-chat')
    p.click('#open-panel')
    p.wait("!document.getElementById('panel').hidden")
    count.check(p.js("document.getElementById('set-temperature').placeholder") != '', "the server's values are shown")
    p.set('set-temperature', 'hot')
    count.check(p.texts('#set-temperature-note') == ['A number is expected']
                and p.js("document.getElementById('set-temperature').getAttribute('aria-invalid')") == 'true', 'a wrong value is named')
    for name, value in (('temperature', '0'), ('max_tokens', '5'), ('stop', 'qqq\nzzz')):
        p.set('set-' + name, value)
    p.set('system', 'You are a parrot.')
    p.js("window.bodies = []; window.realFetch = fetch; window.fetch = (u, o) => { if (u.includes('completions')) bodies.push(JSON.parse(o.body)); return realFetch(u, o); }")
    p.say('Hello')
    body = p.js('bodies[0]')
    count.check((body['temperature'], body['max_tokens'], body['stop'], body['messages'][0]) ==
                (0, 5, ['qqq', 'zzz'], {'role': 'system', 'content': 'You are a parrot.'}), 'settings go with the request')
    count.check('top_p' not in body, 'empty ones do not')
    count.check('limit' in ''.join(p.texts('.notes')) or 'longest' in ''.join(p.texts('.notes')), 'an answer that was cut says so')
    p.stored()
    chat = p.get(p.chat())
    count.check(chat['settings']['max_tokens'] == 5 and chat['system'] == 'You are a parrot.', 'and are kept with the chat')
    first = p.last()
    p.click('.message.assistant button[aria-label="Answer again"]')
    p.done()
    count.check(p.last() == first, 'temperature 0 answers the same again')
    p.click('.setting:nth-of-type(2) .icon-button')
    count.check(p.js("!document.querySelector('.setting:nth-of-type(2) .help').hidden"), 'a setting explains itself')
    p.click('#tab-model')
    p.wait("document.querySelector('.plan-bar')")
    count.check('demo.gguf' in p.texts('#pane-model')[0] and 'MiB' in p.texts('#pane-model')[0], 'the model and its memory')
    p.click('#tab-activity')
    p.wait("document.querySelectorAll('.chart').length == 4")
    p.say('Again', wait=False)
    p.wait("document.querySelector('.chart .line').getAttribute('d').length > 20", 20)
    count.check('tokens/s' in p.texts('.chart b')[0], 'what goes on is drawn')
    p.done()
    p.click('#close-panel')


def check_tools(count, p):
    p.click('#new-chat')
    p.set('set-temperature', '0')
    p.set('set-tools', json.dumps([{'type': 'function', 'function': {
        'name': 'weather', 'description': 'The weather of a city.', 'parameters': {
            'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}}]))
    p.say('What is the weather in Paris?')
    p.wait("document.querySelector('.call textarea')")
    count.check('weather' in p.texts('.call')[0] and 'Paris' in p.texts('.call')[0], 'a call is shown')
    p.js("document.querySelector('.call textarea').focus()")
    p.type('sunny, 20 degrees')
    p.click('.call .primary')
    p.wait("document.querySelectorAll('.message.assistant').length == 2")
    p.done()
    count.check('sunny' in p.last() and p.texts('.result') == ['sunny, 20 degrees'], 'and its result is read')
    p.stored()
    p.reload()
    p.wait("document.querySelectorAll('.message').length == 4")
    count.check('weather' in p.texts('.call')[0] and not p.js("document.querySelector('.call textarea')"), 'all of it is stored')


def check_safe(count, p):
    """Texts that would be markup, in every place that shows one; nothing asked of anybody else."""
    md = '\n\n'.join([EVIL, '# ' + EVIL, '- ' + EVIL, '> ' + EVIL, '[x](javascript:window.pwned=1)', '```%s\n%s\n```' % ('<b>', EVIL),
                      '|%s|b|\n|-|-|\n|%s|c|' % (EVIL, EVIL), '![x](http://127.0.0.1:1/pixel.png)', '[ok](https://example.org/)', '$%s$' % EVIL])
    p.put('evil', {'title': EVIL, 'system': EVIL, 'head': 'c', 'messages': [
        message('a', None, 'user', EVIL), message('b', 'a', 'assistant', md, reasoning=EVIL, model=EVIL, tool_calls=[
            {'id': EVIL, 'function': {'name': EVIL, 'arguments': EVIL}}]),
        message('c', 'b', EVIL[:32], EVIL), message('d', 'c', 'assistant', 'x', error=EVIL)]})
    p.tab.events.clear()
    p.go(p.url + '#evil')
    p.reload()
    p.wait("document.querySelectorAll('.message').length >= 3")
    p.click('#search')
    p.type('javascript:')
    p.wait("document.querySelector('#chats mark')")
    p.js("new Promise(r => setTimeout(r, 200))")
    count.check(p.js('window.pwned') is None, 'nothing ran')
    count.check(p.js("document.querySelectorAll('#log img, #log script, #log b:not(.call-head b), #chats img, iframe, object, embed').length") == 0,
                'nothing became markup')
    count.check(p.said()[0] == EVIL and p.texts('#title') == [EVIL] and EVIL in p.texts('#chats .chat-title'), 'texts stay as they were')
    links = p.js("[...document.querySelectorAll('.md a')].map(a => [a.protocol, a.rel, a.target])")
    count.check(links and all(l[0] in ('http:', 'https:') and 'noopener' in l[1] and l[2] == '_blank' for l in links), 'links are harmless')
    here = p.url.rstrip('/')
    others = [u for u in p.tab.events if not u.startswith((here, 'data:', 'blob:'))]
    count.check(not others, 'no request leaves: %s' % others[:3])
    p.js("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
    refused = p.js("""(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return ''; } catch (e) { return e.name; } })()""")
    count.check(refused == 'TypeError', "the page's policy forbids markup from strings")
    p.tab.said[:] = [t for t in p.tab.said if 'TrustedHTML' not in t]


def check_keyboard(count, p):
    """Everything by keys: a question, the list, a menu, a dialog, the panel's tabs."""
    p.put('second', {'title': 'Another', 'updated': 1})
    p.reload()
    p.wait("document.querySelector('#chats a[data-chat=second]')")
    p.key('o', 10)  # Ctrl+Shift+O
    p.wait("document.activeElement.id == 'input' && document.querySelector('.welcome')")
    p.type('Hello')
    p.key('Enter', 8)
    p.type('there')
    count.check(p.js("document.getElementById('input').value") == 'Hello\nthere', 'Shift+Enter makes a line')
    p.key('Enter')
    p.done()
    p.key('k', 2)
    p.wait("document.activeElement.id == 'search'")
    p.key('Tab')
    count.check(p.js("document.activeElement.dataset.chat != null"), 'Tab goes on to the list')
    first = p.js('document.activeElement.dataset.chat')
    p.key('ArrowDown')
    count.check(p.js("document.activeElement.dataset.chat != '%s'" % first), 'arrows move in it')
    p.key('ArrowUp')
    p.key('F2')
    p.wait("document.querySelector('dialog[open]')")
    p.key('Escape')
    p.wait("!document.querySelector('dialog[open]')")
    p.js("document.querySelector('#chats a[data-chat=\"%s\"]').focus()" % first)
    p.key('Tab')
    p.key('Enter')
    p.wait("document.getElementById('menu')")
    p.key('ArrowDown')
    count.check(p.js("document.activeElement.textContent") == 'Export as Markdown', 'menus by arrows')
    p.key('Escape')
    count.check(p.js("document.getElementById('menu') == null && document.activeElement.getAttribute('aria-haspopup') == 'menu'"),
                'Escape closes one and goes back')
    p.key(',', 2)
    p.wait("document.activeElement.id == 'tab-settings' || document.activeElement.getAttribute('role') == 'tab'")
    p.key('ArrowRight')
    count.check(p.js("document.activeElement.getAttribute('aria-selected')") == 'true', 'tabs by arrows')
    p.key('Escape')
    count.check(p.js("document.getElementById('panel').hidden && document.activeElement.id == 'open-panel'"), 'Escape closes the panel')
    rings = p.js("""(() => { const e = document.getElementById('new-chat'); e.focus({focusVisible: true});
        return getComputedStyle(e).outlineStyle != 'none' && parseFloat(getComputedStyle(e).outlineWidth) >= 2; })()""")
    count.check(rings, 'what has the focus is seen')


def check_phone(count, p):
    p.size(390, 844, True)
    p.put('phone', {'title': 'Small', 'head': 'b', 'messages': [
        message('a', None, 'user', 'x' * 300), message('b', 'a', 'assistant', SHOW)]})
    p.go(p.url + '#phone')
    p.reload()
    p.wait("document.querySelector('.message.assistant .md')")
    wide = p.js("document.documentElement.scrollWidth > innerWidth || document.getElementById('log').scrollWidth > innerWidth")
    count.check(not wide, 'nothing is wider than a phone')
    count.check(p.js("getComputedStyle(document.getElementById('sidebar')).display") == 'none', 'the list is a drawer')
    p.click('#open-sidebar')
    p.wait("getComputedStyle(document.getElementById('sidebar')).display == 'flex'")
    count.check(p.js("document.getElementById('main').inert"), 'what lies under it cannot be reached')
    p.js("document.querySelector('#chats a[data-chat=phone]').focus()")
    p.click('#close-sidebar')
    small = p.js("""[...document.querySelectorAll('button')].filter(e => e.offsetParent && !e.disabled && (e.offsetWidth < 24 || e.offsetHeight < 24))
                    .map(e => e.getAttribute('aria-label') || e.textContent)""")
    count.check(not small, 'what is touched is large enough: %s' % small)
    p.size(1280, 800)


# ---- whoever cannot see it, or not well ----

AUDIT = r"""(() => {
    const out = [], shown = e => { const s = getComputedStyle(e); return e.checkVisibility() && s.visibility != 'hidden' && e.getBoundingClientRect().width > 1; };
    const name = e => (e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map(i => i && document.getElementById(i) ? document.getElementById(i).textContent : '').join('')
                      || (e.labels && e.labels.length ? e.labels[0].textContent : '') || e.textContent || e.title || '').trim();
    for (const e of document.querySelectorAll('button, a[href], input, select, textarea, [role=tab], [role=region], dialog, nav, aside, section, article'))
        if (shown(e) && !name(e)) out.push('no name: ' + e.outerHTML.slice(0, 80));
    const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
    for (const id of new Set(ids.filter((x, i) => ids.indexOf(x) != i))) out.push('id twice: ' + id);
    for (const a of ['aria-controls', 'aria-labelledby', 'aria-describedby', 'for'])
        for (const e of document.querySelectorAll('[' + a + ']'))
            if (!document.getElementById(e.getAttribute(a))) out.push(a + ' names nothing: ' + e.getAttribute(a));
    if (document.body.innerText.includes('[object') || /undefined|NaN/.test(document.body.innerText)) out.push('no text');
    for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) out.push('tabindex > 0');
    if (document.querySelectorAll('main').length != 1 || document.querySelectorAll('h1').length != 1) out.push('one main and one h1');
    for (const e of document.querySelectorAll('pre, .table')) if (shown(e) && e.scrollWidth > e.clientWidth && e.tabIndex < 0) out.push('not reachable: ' + e.className);
    // contrast: computed colours, through what lies behind
    const cv = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = c => { cv.clearRect(0, 0, 1, 1); cv.fillStyle = c; cv.fillRect(0, 0, 1, 1); return [...cv.getImageData(0, 0, 1, 1).data]; };
    const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] / 255 + b[i] * (1 - a[3] / 255)).concat(255);
    const lum = c => [0.2126, 0.7152, 0.0722].reduce((s, w, i) => { const v = c[i] / 255; return s + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
    const behind = e => { const stack = []; for (let x = e; x; x = x.parentElement) { const b = rgba(getComputedStyle(x).backgroundColor); stack.push(b); if (b[3] == 255) break; }
                          return stack.reverse().reduce((b, a) => over(a, b), [255, 255, 255, 255]); };
    const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    let n = 0;
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some(t => t.nodeType == 3 && t.data.trim());
        const field = e.matches('input, textarea, select');
        if (!(own || field) || !shown(e) || e.closest('svg, :disabled, option, .off-screen') || e.matches('style, script, noscript')) continue;
        n++;
        const b = behind(e), r = ratio(over(rgba(getComputedStyle(e).color), b), b);
        if (r < 4.5) out.push('contrast ' + r.toFixed(2) + ': ' + e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30));
        if (field && e.placeholder) { const q = ratio(over(rgba(getComputedStyle(e, '::placeholder').color), b), b); if (q < 4.5) out.push('placeholder ' + q.toFixed(2)); }
        if (field && getComputedStyle(e).borderTopWidth != '0px') { const q = ratio(over(rgba(getComputedStyle(e).borderTopColor), behind(e.parentElement)), behind(e.parentElement)); if (q < 3) out.push('border ' + q.toFixed(2) + ' ' + e.id); }
    }
    return {out, n};
})()"""

SHOW = """Here is a **short** plan, with `code`, a [link](https://example.org/) and a formula $e^{i\\pi} + 1 = 0$.

## Steps

1. Read the file
   - in pieces of 64 KiB
   - with *care*
2. Count the words
3. Print them

```python
def words(path):
    with open(path) as f:                      # a line that is long enough to need scrolling on a phone's screen
        return sum(len(line.split()) for line in f)
```

| Size | Seconds | Note |
| --- | ---: | --- |
| 1 MiB | 0.02 | in the cache |
| 1 GiB | 14.50 | read from the disk |

> Measure before you cut.

- [x] written
- [ ] tested

$$
\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}
$$
"""


def check_access(count, p, shots):
    p.put('shown', {'title': 'Counting words', 'head': 'g', 'messages': [
        message('a', None, 'user', 'How do I count the words of a file?'),
        message('b', 'a', 'assistant', SHOW, reasoning='The user wants to count words. A loop over lines is enough.', model='demo.gguf',
                timings={'predicted_per_second': 41.5}, usage={'completion_tokens': 212, 'prompt_tokens': 40, 'prompt_tokens_details': {'cached_tokens': 30}}),
        message('b2', 'a', 'assistant', 'Another version.', model='demo.gguf'),
        message('c', 'b', 'user', 'And the weather in Paris?'),
        message('d', 'c', 'assistant', '', model='demo.gguf', tool_calls=[{'id': 'x', 'function': {'name': 'weather', 'arguments': '{"city": "Paris"}'}}]),
        message('e', 'd', 'tool', 'sunny, 20 degrees', tool_call_id='x'),
        dict(message('g', 'e', 'assistant', 'It is sunny, and', model='demo.gguf', error='The connection to the server broke.'), finish=None)]})
    p.go(p.url + '#shown')
    p.reload()
    p.wait("document.querySelectorAll('.message').length == 6")
    p.js("document.querySelector('.thinking').open = true")
    p.click('#open-panel')
    for dark in (False, True):
        p.dark(dark)
        for tab in ('settings', 'model', 'activity'):
            p.js("document.getElementById('tab-%s').click()" % tab)
            if tab == 'settings':
                p.js("document.querySelectorAll('.setting .icon-button').forEach((b, i) => i < 2 && b.click())")
            p.js("new Promise(r => setTimeout(r, 300))")
            r = p.js(AUDIT)
            count.check(r['n'] > 60 and not r['out'], '%s, %s: %d texts seen: %s' % (tab, 'dark' if dark else 'light', r['n'], r['out'][:5]))
            if shots:
                p.shot('%s/panel-%s-%s.png' % (shots, tab, 'dark' if dark else 'light'))
    p.click('#close-panel')
    for dark in (False, True):
        p.dark(dark)
        p.menu('shown', 'Delete')
        p.wait("document.querySelector('dialog[open]')")
        p.js("new Promise(r => setTimeout(r, 200))")
        r = p.js(AUDIT)
        count.check(not r['out'], 'a question, %s: %s' % ('dark' if dark else 'light', r['out'][:5]))
        if shots:
            p.shot('%s/dialog-%s.png' % (shots, 'dark' if dark else 'light'))
        p.key('Escape')
        for at, where in ((0, 'begin'), (1e9, 'end')):
            p.js("document.getElementById('scroll').scrollTop = %d" % at)
            if shots:
                p.shot('%s/chat-%s-%s.png' % (shots, where, 'dark' if dark else 'light'))
    if shots:
        p.size(390, 844, True)
        for at, where in ((0, 'begin'), (600, 'middle'), (1e9, 'end')):
            p.js("document.getElementById('scroll').scrollTop = %d" % at)
            p.shot('%s/phone-%s.png' % (shots, where))
        p.click('#open-sidebar')
        p.shot(shots + '/phone-list.png')
        p.click('#close-sidebar')
        p.click('#open-panel')
        p.shot(shots + '/phone-panel.png')
        p.click('#close-panel')
        p.size(1280, 800)
    p.dark(False)
    p.js("document.getElementById('theme').click()")
    p.js("document.getElementById('theme').click()")
    count.check(p.js("getComputedStyle(document.body).backgroundColor") == 'rgb(22, 23, 25)', 'dark by the switch')
    p.reload()
    count.check(p.js("document.documentElement.dataset.theme") == 'dark', 'which is remembered')
    p.js("document.getElementById('theme').click()")
    live = p.js("(e => [e.getAttribute('aria-live'), e.getAttribute('role')])(document.getElementById('live'))")
    count.check(live == ['polite', 'status'], 'changes are said politely')


def check_heavy(count, p):
    """A long chat, and one answer of a megabyte."""
    long = [message('m0', None, 'user', 'start')]
    for i in range(1, 400):
        long.append(message('m%d' % i, 'm%d' % (i - 1), 'assistant' if i % 2 else 'user', SHOW if i % 2 else 'question %d' % i))
    p.put('long', {'title': 'Long', 'head': 'm399', 'messages': long})
    p.put('huge', {'title': 'Huge', 'head': 'b', 'messages': [message('a', None, 'user', 'x'), message('b', 'a', 'assistant', '*a `b` [c](d ' * 80000)]})
    for chat, n in (('long', 400), ('huge', 2)):
        p.go(p.url + '#' + chat)
        start = time.monotonic()
        p.call('Page.reload')
        p.wait("document.title.startsWith('%s')" % chat.title())
        p.wait("document.querySelectorAll('.message').length == %d" % n, 60)
        count.check(True, '%s chat shown in %.1f s' % (chat, time.monotonic() - start))
        p.js("fetch('/lode/chats/%s', {method: 'DELETE'}).then(r => r.status)" % chat)


# ---- servers that go, ask for keys, keep nothing ----

def check_gone(count, b, program, chats, shots):
    port = str(free_port())
    s = Server(program, '--port', port, '--chats', chats)
    p = Page(b, 'http://127.0.0.1:%s/' % port)
    p.say_and_see(SLOW)
    s.p.kill()
    s.stop()
    p.done()
    count.check('broke' in ''.join(p.texts('.error')), 'a broken answer says so')
    p.wait("document.getElementById('banner').textContent.includes('does not answer')")
    half = p.last()
    if shots:
        p.shot(shots + '/gone.png')
    s = Server(program, '--port', port, '--chats', chats)
    p.wait("document.getElementById('banner').textContent.includes('is back')", 40)
    count.check(p.last() == half and half, 'the page finds the server again, with what had come')
    p.click('.error button')
    p.done()
    count.check('2/2' in p.texts('.branches'), 'and the question can be asked again')
    p.stored()
    p.js("new Promise(r => setTimeout(r, 500))")
    count.check(len(p.get(p.chat())['messages']) == 3, 'nothing was lost')
    count.check(not p.tab.said, 'the page did not complain: %s' % p.tab.said[:2])
    s.stop()


def check_key(count, b, program, chats, shots):
    s = Server(program, '--api-key', 'secret', '--chats', chats)
    tab = b.tab()
    tab.go('http://127.0.0.1:%d/' % s.port)
    for key, good in (('wrong', False), ('secret', True)):
        tab.wait("document.querySelector('dialog[open]') && document.activeElement.id == 'dialog-input'")
        if shots and not good:
            tab.shot(shots + '/key.png')
        tab.type(key)
        tab.key('Enter')
        if not good:
            tab.wait("document.getElementById('dialog-text').textContent.includes('does not take')")
    tab.wait("document.querySelector('.welcome p').textContent.includes('demo.gguf')")
    count.check(tab.js("sessionStorage.getItem('lode.key') == 'secret' && !JSON.stringify(localStorage).includes('secret')"),
                'the key is asked for, and kept for this tab alone')
    tab.reload()
    tab.wait("document.querySelector('.welcome p').textContent.includes('demo.gguf')")
    count.check(not tab.js("document.querySelector('dialog[open]')"), 'and asked for once')
    s.stop()


def check_browser_store(count, b, program):
    s = Server(program, '--no-chats')
    p = Page(b, 'http://127.0.0.1:%d/' % s.port)
    p.wait("document.getElementById('where').textContent.includes('this browser only')")
    count.check('--no-chats' in p.texts('#where')[0], 'without the store the page says where chats are')
    p.set('set-max_tokens', '8')
    p.say('Hello there')
    p.stored()
    answer, chat = p.last(), p.chat()
    p.reload()
    p.wait("document.querySelector('.message.assistant .md')")
    count.check(p.last() == answer, 'the browser keeps them')
    p.click('#search')
    p.type('HELLO')
    p.wait("document.querySelectorAll('#chats a').length == 1")
    p.menu(chat, 'Delete')
    p.click('#dialog-ok')
    p.wait("document.querySelectorAll('#chats a').length == 0")
    count.check(p.js("fetch('/lode/chats').then(r => r.status)") == 501, 'and the server none')
    count.check(not p.tab.said, 'the page did not complain: %s' % p.tab.said[:2])
    s.stop()


def check_damage(count, b, program, folder):
    chats = folder + '/damaged.db'
    s = Server(program, '--chats', chats)
    s.ask('PUT', '/lode/chats/a', {'new': True, 'title': 'x'})
    s.stop()
    with open(chats, 'r+b') as f:
        f.write(b'\0' * 100)
    s = Server(program, '--chats', chats)
    p = Page(b, 'http://127.0.0.1:%d/' % s.port)
    p.wait("document.getElementById('banner').textContent.includes('damaged')")
    kept = [n for n in os.listdir(folder) if n.startswith('damaged.db.damaged-')]
    count.check(kept and os.path.getsize(folder + '/' + kept[0]) > 4096, 'a damaged file is set aside, and the page says so')
    s.p.send_signal(15)
    said = s.p.stderr.read().decode()
    count.check('damaged' in said, 'the terminal too')
    s.stop()


def check_http(count, s):
    status, text, r = s.ask('GET', '/')
    policy = r.getheader('Content-Security-Policy')
    count.check(status == 200 and "default-src 'none'" in policy and 'unsafe' not in policy and "script-src 'sha256-" in policy,
                'a policy without exceptions')
    count.check('src="http' not in text and '@import' not in text and 'url(' not in text, 'one file')
    count.check(s.ask('GET', '/lode/chats', headers={'Host': 'evil.example'})[0] == 403, 'another name than localhost')
    for method, path, body, want in (
            ('POST', '/lode/chats/a', b'{}', 405), ('PUT', '/lode/chats', b'{}', 405), ('PUT', '/lode/chats/a', b'[]', 400),
            ('PUT', '/lode/chats/a', b'{', 400), ('PUT', '/lode/chats/a%2fb', b'{}', 400), ('PUT', '/lode/chats/nowhere', b'{}', 404),
            ('DELETE', '/lode/chats/nowhere', None, 404), ('GET', '/lode/chats/nowhere', None, 404), ('POST', '/', b'', 405),
            ('GET', '/lode/chats?limit=9999', None, 400), ('GET', '/lode/chats?q=' + 'x' * 300, None, 400), ('POST', '/lode/status', b'', 405),
            ('PUT', '/lode/chats/a', b'[' * 100000, 400)):
        status, text, _ = s.ask(method, path, body)
        count.check(status == want and 'message' in json.loads(text)['error'], '%s %s: %d' % (method, path[:30], status))


def main():
    program = sys.argv[1]
    flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    shots, only = flags.get('--shots'), flags.get('--only', '')
    count = Count()
    if not browser.BROWSER:
        print('0 passed, 0 failed, 1 skipped')
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix='lode-page-') as folder, Browser() as b:
        chats = folder + '/chats.db'
        try:
            s = Server(program, '--chats', chats)
        except RuntimeError as e:
            if 'left out of this build' not in str(e):
                raise
            print('0 passed, 0 failed, 1 skipped')  # no server, or no SQLite
            sys.exit(77)
        if not only or only == 'http':
            check_http(count, s)
        p = Page(b, 'http://127.0.0.1:%d/' % s.port)
        if shots:
            p.shot(shots + '/welcome.png')
        for name, f in (('talk', check_talk), ('stop', check_stop), ('list', check_list), ('files', check_files),
                        ('settings', check_settings), ('tools', check_tools), ('safe', check_safe), ('keyboard', check_keyboard),
                        ('phone', check_phone), ('access', lambda c, q: check_access(c, q, shots)), ('heavy', check_heavy)):
            if only and only != name:
                continue
            try:
                f(count, p)
            except (Failed, IndexError, TypeError) as e:
                count.check(False, '%s: %s' % (name, e))
                p.tab.size(1280, 800)
                if shots:
                    p.shot('%s/failed-%s.png' % (shots, name))
            count.check(not p.tab.said, '%s: the page did not complain: %s' % (name, p.tab.said[:2]))
            p.tab.said.clear()
        s.stop()
        for name, f in (('gone', lambda: check_gone(count, b, program, chats, shots)),
                        ('key', lambda: check_key(count, b, program, chats, shots)),
                        ('browser', lambda: check_browser_store(count, b, program)),
                        ('damage', lambda: check_damage(count, b, program, folder))):
            if not only or only == name:
                try:
                    f()
                except Failed as e:
                    count.check(False, '%s: %s' % (name, e))
    count.end()


if __name__ == '__main__':
    try:
        main()
    except browser.NoStart as e:
        print('skip  %s\n0 passed, 0 failed, 1 skipped' % e)
        sys.exit(77)
