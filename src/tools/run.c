/* run.c - `lode run`: one answer, or a chat (repl.c). */
#include "run.h"

#include "chat_source.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"
#include "profile.h"
#include "reads.h"
#include "remote.h"
#include "toolbox.h"
#include "verbs.h"

#include "lode/lode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const char *const auto_on_off[] = {"auto", "on", "off", NULL};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct run_opts),
    {"-p, --prompt", ARG_STR, ARG_AT(struct run_opts, prompt), .meta = "TEXT", .pos = 2,
     .group = "Prompt", .help = "answer this and leave (also the second argument)"},
    {"-f, --file", ARG_STR, ARG_AT(struct run_opts, file), .meta = "FILE",
     .help = "take the prompt from a file; - is standard input"},
    {"--messages", ARG_STR, ARG_AT(struct run_opts, messages), .meta = "FILE",
     .help = "go on from messages as JSON (what /save writes); where the last is not the model's, "
             "it is answered"},
    {"-i, --interactive, -cnv, --conversation", ARG_BOOL, ARG_AT(struct run_opts, interactive),
     .help = "chat on after the prompt, also when standard input is not a terminal"},
    {"-sys, --system, --system-prompt", ARG_STR, ARG_AT(struct run_opts, system), .meta = "TEXT",
     .help = "the system message"},
    {"-sysf, --system-file, --system-prompt-file", ARG_STR, ARG_AT(struct run_opts, system_file),
     .meta = "FILE", .help = "the system message from a file"},
    {"--raw", ARG_BOOL, ARG_AT(struct run_opts, raw),
     .help = "no chat template: continue the text as it is"},
    {"--chat-template, --chat-template-file", ARG_STR, ARG_AT(struct run_opts, template),
     .meta = "NAME|FILE",
     .help = "use this template instead of the model's: a built-in (lode template --list), or a "
             "Jinja file"},
    {"--chat-template-kwargs", ARG_STR, ARG_AT(struct run_opts, template_vars), .meta = "JSON",
     .help = "more variables for the template"},
    {"--think, --thinking", ARG_CHOICE, ARG_AT(struct run_opts, think), .meta = "WHEN",
     .def = "auto", .choices = auto_on_off,
     .help = "ask the model to think before it answers; auto leaves it to the template"},

    {"-n, --predict, --n-predict", ARG_INT, ARG_AT(struct run_opts, n_predict), .meta = "N",
     .def = "-1", .shown = "-1, until the model ends or the context is full", .min = -1,
     .max = INT32_MAX, .group = "Answer", .help = "tokens at most"},
    {"--stop, -r, --reverse-prompt", ARG_STRS, ARG_AT(struct run_opts, stops), .meta = "TEXT",
     .help = "end the answer before this text; may be given several times"},
    {"--show-thinking", ARG_CHOICE, ARG_AT(struct run_opts, show_thinking), .meta = "WHEN",
     .def = "auto", .choices = auto_on_off,
     .help = "print what the model thinks; auto: on a terminal, dimmed"},
    {"--tool-format", ARG_STR, ARG_AT(struct run_opts, tool_format), .meta = "NAME", .def = "auto",
     .shown = "what the template writes", .debug = true,
     .help = "how the model writes calls of tools (lode template --formats)"},
    {"--special", ARG_BOOL, ARG_AT(struct run_opts, special),
     .help = "print special tokens as text"},
    {"--stats", ARG_BOOL, ARG_AT(struct run_opts, stats),
     .help = "close with tokens/s and the share of the memory's read bandwidth, on standard "
             "error"},
    {"-v, --verbose", ARG_BOOL, ARG_AT(struct run_opts, verbose),
     .help = "say what was loaded, the seed, and --stats"},

    {"--tools", ARG_STR, ARG_AT(struct run_opts, tools), .meta = "builtin|FILE", .group = "Tools",
     .help = "let the model call tools on this machine (read a file, list a directory, run a command, or "
             "those of a file); each call is asked for first"},
    {"--yes", ARG_BOOL, ARG_AT(struct run_opts, yes), .help = "with --tools: do not ask"},
    {"--url", ARG_STR, ARG_AT(struct run_opts, url), .meta = "URL", .group = "Another server",
     .help = "chat through a server (http://127.0.0.1:8080); MODEL is then its name there, or left out"},
    {"--api-key", ARG_STR, ARG_AT(struct run_opts, key), .meta = "KEY", .help = "what it asks for"},

    CONSTRAINT_FLAGS(struct run_opts),

    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct run_opts, load.ctx), .meta = "N", .def = "0",
     .shown = "what the model was trained for", .min = 0, .max = 1 << 28,
     .group = "Speed and memory", .help = "longest conversation in tokens"},
    LOAD_SESSION_FLAGS(struct run_opts),
    SAMPLING_FLAGS(struct run_opts),
    LOAD_FOREIGN_FLAGS,
    {"--jinja", ARG_FOREIGN_BOOL, .help = "templates are always Jinja"},
    {"-no-cnv, --no-conversation", ARG_FOREIGN_BOOL,
     .help = "with a prompt there is one answer; --raw turns the template off"},
    {"--color", ARG_FOREIGN_BOOL, .help = "terminals get colours, NO_COLOR=1 turns them off"},
};

static const struct arg_spec spec = {
    .verb = "run",
    .usage = "MODEL [flags]              chat\n"
             "MODEL PROMPT [flags]       one answer\n"
             "MODEL [flags] < FILE       one answer to what is read",
    .brief = "chat with a model, or answer one prompt",
    .about =
        "On a terminal, without a prompt, this is a chat: /help lists its commands, Ctrl+C stops\n"
        "an answer and not the program, \"\"\" begins and ends text of several lines.  Otherwise "
        "one\n"
        "answer goes to standard output, and nothing else does.  A prompt that is longer than the\n"
        "context is refused, never cut.  Defaults of the sampling come from the model's file "
        "where\n"
        "it has some.",
    .examples = "lode run models/demo.gguf\n"
                "lode run models/demo.gguf -p \"What is the capital of France?\" --temp 0\n"
                "lode run models/demo.gguf < question.txt > answer.txt\n"
                "lode run models/demo.gguf -p \"A person\" -j '{\"type\": \"object\"}'\n"
                "lode run models/demo.gguf --raw -p \"Once upon a time\" -n 100 --seed 7 --stats",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* ------------------------------------------------------------------------------------- the text */

static void print(struct run *r, const char *text, size_t len) {
    fwrite(text, 1, len, stdout);
    if (len)
        r->midline = text[len - 1] != '\n';
}

static void set_dimmed(struct run *r, bool dimmed) {
    if (dimmed != r->dimmed)
        fputs(dimmed ? out_dim(stdout) : out_plain(stdout), stdout);
    r->dimmed = dimmed;
}

static void start_line(struct run *r) {
    if (r->midline)
        print(r, "\n", 1);
}

/* Thinking is dimmed, a call is a line "-> name({...})". */
static int put_event(void *user, const struct lode_toolcall_event *e) {
    struct run *r = user;
    const bool thinking = e->kind == LODE_TOOLCALL_REASONING;
    if (e->kind == LODE_TOOLCALL_MARKUP || (thinking && !r->show_thinking))
        return 0;
    if (r->dimmed && !thinking) {
        set_dimmed(r, false);
        print(r, "\n\n", 2); /* what separated the two was not text */
    }
    switch (e->kind) {
    case LODE_TOOLCALL_REASONING:
        set_dimmed(r, true);
        print(r, e->text, e->len);
        break;
    case LODE_TOOLCALL_BEGIN:
        start_line(r);
        printf("%s-> %s%s(", out_bold(stdout), e->name, out_plain(stdout));
        r->midline = true;
        break;
    case LODE_TOOLCALL_END:
        print(r, ")\n", 2);
        break;
    case LODE_TOOLCALL_MALFORMED:
        start_line(r);
        print(r, e->text, e->len);
        fflush(stdout);
        fprintf(stderr, "\nlode: note: this is no tool call, but text: %s\n", e->reason);
        break;
    default:
        print(r, e->text, e->len);
    }
    return !out_flush();
}

static bool cancelled(void *user) {
    (void)user;
    return interrupt_seen();
}

/* ----------------------------------------------------------------------------------- statistics */

static uint64_t cache_size(void) {
    struct lode_machine m;
    lode_machine_probe(&m);
    return m.cache_l3 > m.cache_l2 ? m.cache_l3 : m.cache_l2;
}

/* "prompt 44 tokens (18 kept), 1772.9 tokens/s; answer 13 tokens, 199.5 tokens/s", and where they
 * are asked for, the bytes behind it. */
static void print_stats(struct run *r, const struct answer *a) {
    char tokens[32], speed[32], machine[32];
    const struct lode_model_info *info = lode_model_info(r->model);
    const size_t n_read = a->n_prompt - a->n_reused;
    /* the first token of an answer comes with the prompt */
    const size_t n_steps = a->n_answer > 1 ? a->n_answer - 1 : 0;
    const double rate = a->answer_seconds > 0 ? (double)n_steps / a->answer_seconds : 0;
    fprintf(stderr, "%sprompt %zu tokens", out_dim(stderr), a->n_prompt);
    if (a->n_reused)
        fprintf(stderr, " (%zu kept)", a->n_reused);
    if (a->prompt_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)n_read / a->prompt_seconds);
    fprintf(stderr, "; answer %zu tokens, %.1f tokens/s\n", a->n_answer, rate);
    if ((r->o.stats || r->o.verbose) && n_steps) {
        if (r->bandwidth == 0)
            r->bandwidth = reads_of_model(r->model, lode_session_threads(r->session), 0.3);
        const double used = rate * (double)info->token_size;
        fprintf(stderr, "%s of weights a token, %s/s",
                format_bytes((double)info->token_size, tokens), format_bytes(used, speed));
        if (r->bandwidth > 0)
            fprintf(stderr, ": %.0f %% of the %s/s that this %s reads from memory%s",
                    100 * used / r->bandwidth, format_bytes(r->bandwidth, machine), info->on_gpu ? "GPU" : "machine",
                    !info->on_gpu && info->token_size < cache_size() ? " (the weights fit its cache)" : "");
        fputc('\n', stderr);
    }
    fputs(out_plain(stderr), stderr);
}

void run_describe(const struct run *r, FILE *f) {
    char size[32], kv[32], state[32] = "", state_size[32];
    const struct lode_model_info *info = lode_model_info(r->model);
    const char *slash = strrchr(info->path, '/');
    const struct lode_memory_plan *plan = lode_session_memory(r->session);
    if (plan->state)
        snprintf(state, sizeof state, ", %.20s state",
                 format_bytes((double)plan->state, state_size));
    fprintf(f,
            "%s: %s, %.1f M parameters, %s, %s\ncontext %u tokens (%s KV, %s%s), %u thread%s, %s\n",
            info->name[0] ? info->name
            : slash       ? slash + 1
                          : info->path,
            info->arch, (double)info->n_params / 1e6, info->type,
            format_bytes((double)info->size, size), lode_session_ctx(r->session),
            strcmp(r->o.load.ctk, r->o.load.ctv) ? "mixed" : r->o.load.ctk,
            format_bytes((double)plan->kv, kv), state, lode_session_threads(r->session),
            lode_session_threads(r->session) == 1 ? "" : "s", info->isa);
}

/* -------------------------------------------------------------------------------------- answers */

static bool model_default(const void *user, const char *key, double *value) {
    return lode_model_sampling_default(user, key, value);
}

int run_make_sampler(struct run *r, struct lode_error *err) {
    struct lode_sampler *fresh;
    const int rc = sampling_create(&fresh, &r->o.sampling, r->model, r->seed, err);
    if (rc < 0)
        return rc;
    lode_sampler_free(r->sampler);
    r->sampler = fresh;
    return 0;
}

static uint64_t random_seed(void) {
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed;
}

/* The prompt's ids, and how its answer is read.  *tools: its tools as JSON; free it. */
static int make_prompt(struct run *r, const char *text, struct ids *ids,
                       struct lode_toolcall_opts *parse, char **tools, struct lode_error *err) {
    *tools = NULL;
    *parse = (struct lode_toolcall_opts){.seed = random_seed(), .put = put_event, .user = r};
    if (r->raw)
        return ids_tokenize(ids, lode_model_tokenizer(r->model), text, strlen(text),
                            LODE_TOK_SPECIAL | LODE_TOK_PARSE, err);
    parse->style = r->chat.style;
    if (strcmp(r->o.tool_format, "auto") != 0)
        parse->style.format = r->o.tool_format;
    if (r->constraint.state) /* what is held to a form is an answer, whatever it looks like */
        parse->style.format = NULL;
    if (r->chat.tools && (*tools = json_dumps(r->chat.tools, JSON_COMPACT))) {
        parse->tools = *tools;
        parse->tools_len = strlen(*tools);
    }
    return chat_prompt(&r->chat, ids, &parse->thinking, err);
}

int run_answer(struct run *r, const char *text, enum answer_end *end, struct lode_error *err) {
    struct answer a;
    struct ids ids;
    char notice[256], *tools;
    struct lode_toolcall_opts parse;
    const struct answer_opts ao = {
        .model = r->model,
        .session = r->session,
        .sampler = r->sampler,
        .constraint = &r->constraint,
        .n_predict = r->o.n_predict,
        .parse = &parse,
        .stops = r->o.stops.v,
        .n_stops = r->o.stops.n,
        .keep_special = r->o.special,
    };
    int rc = make_prompt(r, text, &ids, &parse, &tools, err);
    if (rc < 0) {
        free(tools);
        return rc;
    }
    r->midline = false;
    rc = answer_generate(&a, &ao, &ids, err);
    ids_free(&ids);
    free(tools);
    set_dimmed(r, false);
    if (rc < 0)
        return rc;
    *end = a.end;
    if (a.n_answer &&
        (out_is_terminal(stdout) || r->midline || (!a.text[0] && !json_array_size(a.calls))))
        putchar('\n');
    out_flush();
    const char *why = answer_notice(&a, &ao, notice, sizeof notice);
    if (why && a.end != ANSWER_CLOSED)
        fprintf(stderr, "%s(%s)%s\n", out_dim(stderr), why, out_plain(stderr));
    if (r->o.stats || r->o.verbose || (out_is_terminal(stderr) && !r->o.interactive))
        print_stats(r, &a);
    if (!r->raw)
        rc = chat_add_answer(&r->chat, a.text, a.thinking, a.calls, err);
    answer_free(&a);
    return rc;
}

int run_turn(struct run *r, const char *text, enum answer_end *end, struct lode_error *err) {
    enum { ROUNDS = 100 };
    for (int i = 0; i < ROUNDS; i++) {
        int rc = run_answer(r, text, end, err);
        const json_t *last = json_array_get(r->chat.messages, json_array_size(r->chat.messages) - 1);
        const json_t *calls = r->tools && !r->raw ? json_object_get(last, "tool_calls") : NULL;
        if (rc < 0 || *end == ANSWER_INTERRUPTED || !json_array_size(calls))
            return rc;
        rc = toolbox_answer(r->tools, r->chat.messages, calls, err);
        if (rc < 0)
            return rc;
        text = NULL;
    }
    return tool_fail(err, LODE_ERR_LIMIT, "tools", "%d rounds of calls are enough: ask again to go on", ROUNDS);
}

/* ---------------------------------------------------------------------------------------- setup */

/* The prompt from -p, -f or standard input; *text stays NULL for a chat without one. */
static int find_prompt(const struct run_opts *o, char **text, struct lode_error *err) {
    size_t size = 0;
    int rc = 0;
    *text = NULL;
    if (o->prompt)
        *text = strdup(o->prompt);
    else if (o->file)
        rc = input_read(o->file, 0, text, &size, err);
    else if (!o->interactive && !o->messages)
        rc = input_read("-", 0, text, &size, err);
    if (rc == 0 && size && strlen(*text) != size) {
        free(*text);
        *text = NULL;
        return tool_fail(err, LODE_ERR_FORMAT, o->file ? o->file : "standard input",
                         "holds a NUL byte: it is not text");
    }
    /* the newline that ends a file is not part of the question */
    if (rc == 0 && *text && !o->raw && !o->prompt)
        while (size && strchr("\r\n", (*text)[size - 1]))
            (*text)[--size] = 0;
    if (rc == 0 && *text && !**text) {
        free(*text);
        *text = NULL;
        if (!o->interactive && !o->messages)
            return tool_fail(err, LODE_ERR_ARG, "prompt",
                             "is empty: give one with -p, -f or on standard input");
    }
    return rc;
}

/* A context that nobody asked for is as large as fits; where that is less than the model's, it is
 * said. */
static int open_session(struct run *r, struct lode_error *err) {
    struct lode_session_opts so = load_session_opts(&r->o.load);
    so.cancel = cancelled;
    int rc = profile_begin(&r->profile, r->model, &r->o.load, err);
    profile_watch(r->profile, &so);
    rc = rc < 0 ? rc : lode_session_create(&r->session, r->model, &so, err);
    const uint32_t trained = lode_model_info(r->model)->ctx_train;
    if (rc == 0 && !so.ctx && lode_session_ctx(r->session) < trained)
        fprintf(stderr,
                "lode: note: memory holds a context of %u tokens, the model was trained for "
                "%u; -c chooses\n",
                lode_session_ctx(r->session), trained);
    return rc;
}

static int set_system(struct run *r, struct lode_error *err) {
    if (r->o.system_file) {
        char *text;
        size_t size;
        int rc = input_read(r->o.system_file, 1 << 24, &text, &size, err);
        if (rc == 0)
            rc = chat_set_system(&r->chat, text, err);
        free(text);
        return rc;
    }
    return r->o.system ? chat_set_system(&r->chat, r->o.system, err) : 0;
}

static int setup(struct run *r, struct lode_error *err) {
    int rc = load_model(&r->model, &r->o.load, err);
    if (rc < 0)
        return rc;
    if (!lode_model_tokenizer(r->model))
        return tool_fail(err, LODE_ERR_UNSUPPORTED, r->o.load.model,
                         "has no vocabulary, so that text cannot be read or written");
    args_model_defaults(&r->args, model_default, r->model);
    r->seed = random_seed();
    rc = open_session(r, err);
    rc = rc < 0 ? rc : run_make_sampler(r, err);
    rc = rc < 0 ? rc : constraint_create(&r->constraint, &r->o.constraint, r->model, err);
    rc = rc < 0 ? rc : chat_init(&r->chat, r->model, r->o.template, r->o.template_vars, err);
    if (rc < 0)
        return rc;
    r->raw = r->o.raw;
    if (!r->raw && !r->chat.tmpl) {
        fprintf(stderr, "lode: note: this model has no chat template, so text is continued as it "
                        "is (--raw says so)\n");
        r->raw = true;
    }
    r->chat.think = !strcmp(r->o.think, "on")    ? CHAT_THINK_ON
                    : !strcmp(r->o.think, "off") ? CHAT_THINK_OFF
                                                 : CHAT_THINK_DEFAULT;
    r->show_thinking = !strcmp(r->o.show_thinking, "on") ||
                       (!strcmp(r->o.show_thinking, "auto") && out_is_terminal(stdout));
    rc = r->o.messages ? chat_load(&r->chat, r->o.messages, err) : 0;
    if (rc == 0 && r->o.tools) {
        rc = toolbox_open(&r->tools, r->o.tools, r->o.yes, err);
        json_decref(rc == 0 ? r->chat.tools : NULL);
        if (rc == 0)
            r->chat.tools = json_incref(toolbox_list(r->tools));
    }
    return rc < 0 ? rc : set_system(r, err);
}

/* Answers the first prompt (NULL: the last message), if there is one; the exit status, or -1 to go
 * on. */
static int first_answer(struct run *r, const char *text) {
    struct lode_error err = {0};
    enum answer_end end = ANSWER_ENDED;
    int rc = r->raw || !text ? 0 : chat_add(&r->chat, "user", text, NULL, &err);
    if (rc == 0 && (text || chat_awaits_answer(&r->chat)))
        rc = run_turn(r, text, &end, &err);
    else if (rc == 0 && !r->o.interactive)
        rc = tool_fail(&err, LODE_ERR_ARG, r->o.messages,
                       "ends with the model's answer: give a prompt to go on");
    if (rc < 0)
        return tool_report(&err);
    if (r->o.interactive)
        return -1;
    return end == ANSWER_INTERRUPTED ? 130 : 0;
}

int verb_run(int argc, char **argv) {
    struct run r = {0};
    int status = args_main(&r.args, &spec, &r.o, argc, argv);
    if (status >= 0)
        return status;
    if (!r.o.load.model && !r.o.url)
        return args_usage_error(&spec, "the model is missing");
    if (strcmp(r.o.tool_format, "auto") != 0 && !chat_knows_format(r.o.tool_format))
        return args_usage_error(&spec, "--tool-format: there is no '%s'", r.o.tool_format);
    if (r.o.raw && r.o.messages)
        return args_usage_error(&spec, "--messages needs the chat template that --raw turns off");
    for (size_t i = 0; i < r.o.stops.n; i++)
        if (!*r.o.stops.v[i])
            return args_usage_error(&spec, "--stop: an empty text would stop every answer");

    struct lode_error err = {0};
    char *prompt = NULL;
    if (!r.o.prompt && !r.o.file && !r.o.messages && out_is_terminal(stdin))
        r.o.interactive = true;
    if (r.o.url)
        return remote_run(&r);
    int rc = setup(&r, &err); /* first: a wrong path is said whatever else is missing */
    rc = rc < 0 ? rc : find_prompt(&r.o, &prompt, &err);
    if (rc < 0) {
        status = tool_report(&err);
    } else {
        interrupt_catch();
        if (r.o.verbose) {
            const struct lode_model_info *info = lode_model_info(r.model);
            run_describe(&r, stderr);
            if (info->upload_seconds > 0)
                fprintf(stderr, "weights uploaded: %.2f GB in %.2f s, %.1f GB/s\n", (double)info->uploaded * 1e-9,
                        info->upload_seconds, (double)info->uploaded * 1e-9 / info->upload_seconds);
            fprintf(stderr, "seed %" PRIu64 "\n",
                    r.o.sampling.seed < 0 ? r.seed : (uint64_t)r.o.sampling.seed);
        }
        status = prompt || r.o.messages ? first_answer(&r, prompt) : -1;
        if (status < 0)
            status = repl(&r);
    }
    if (profile_finish(r.profile, rc, &err) < 0 && rc == 0)
        status = tool_report(&err);
    free(prompt);
    free(r.kept);
    toolbox_close(r.tools);
    chat_deinit(&r.chat);
    lode_sampler_free(r.sampler);
    constraint_free(&r.constraint);
    lode_session_free(r.session);
    lode_model_free(r.model);
    return status;
}
