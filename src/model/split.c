#include "model/split.h"

#include "backend/cuda.h"
#include "base/alloc.h"
#include "model/model.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- names of devices ---- */

struct device_name {
    bool cuda;
    int index; /* -1: none is named */
};

/* "cpu", "cpu:1", "cuda", "cuda:1", "CUDA1" */
static bool parse_device(struct device_name *d, const char *name, size_t n) {
    d->cuda = n >= 4 && strncasecmp(name, "cuda", 4) == 0;
    if (!d->cuda && (n < 3 || strncasecmp(name, "cpu", 3) != 0))
        return false;
    size_t at = d->cuda ? 4 : 3;
    d->index = -1;
    if (at == n)
        return true;
    at += name[at] == ':';
    if (at == n || n - at > 3)
        return false;
    for (d->index = 0; at < n; at++) {
        if (name[at] < '0' || name[at] > '9')
            return false;
        d->index = 10 * d->index + (name[at] - '0');
    }
    return true;
}

static bool wants_rows(const struct lode_model *m) { return m->split_mode == LODE_SPLIT_ROW; }

int lode_split_mode(struct lode_model *m, const char *name, struct lode_error *err) {
    static const struct {
        const char *name;
        enum lode_split_mode mode;
    } modes[] = {{"layer", LODE_SPLIT_LAYER}, {"row", LODE_SPLIT_ROW}, {"tensor", LODE_SPLIT_ROW}, {"none", LODE_SPLIT_NONE}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!name || strcmp(name, modes[i].name) == 0) {
            m->split_mode = modes[i].mode;
            return 0;
        }
    return lode_fail(err, LODE_ERR_ARG, "--split-mode", "'%.40s'; layer, row or none expected", name);
}

int lode_split_place(const struct lode_model *m, const char *name, size_t n) {
    struct device_name d;
    if (!parse_device(&d, name, n))
        return -1;
    if (!d.cuda && d.index <= 0)
        return LODE_HOST;
    for (uint32_t p = 1; p < m->n_places; p++)
        if ((m->devices[p].cuda != NULL) == d.cuda && (d.index < 0 || m->devices[p].index == d.index))
            return (int)p;
    return -1;
}

static int add_device(struct lode_model *m, bool cuda, int index, struct lode_error *err) {
    if (m->n_places == LODE_PLACES)
        return lode_fail(err, LODE_ERR_LIMIT, "--device", "at most %d devices", LODE_PLACES - 1);
    struct lode_device *d = &m->devices[m->n_places];
    d->index = index;
    if (cuda)
        LODE_TRY(lode_cuda_open(&d->cuda, index, err));
    for (uint32_t p = 1; cuda && p < m->n_places; p++)
        if (m->devices[p].cuda)
            lode_cuda_befriend(m->devices[p].cuda, d->cuda);
    m->n_places++;
    if (cuda && m->n_gpus++ == 0)
        m->gpu = index;
    return 0;
}

int lode_split_devices(struct lode_model *m, const char *list, struct lode_error *err) {
    struct lode_error why = {0};
    m->n_places = 1;
    if (!list || strcmp(list, "auto") == 0) {
        const int n = lode_cuda_count(&why);
        if (n == 0)
            return 0;
        int rc = add_device(m, true, 0, &why);
        for (int i = 1; rc == 0 && wants_rows(m) && i < n && i < LODE_PLACES - 1; i++)
            rc = add_device(m, true, i, &why);
        if (rc == LODE_ERR_NOMEM)
            *err = why;
        else if (rc < 0)
            snprintf(m->device_note, sizeof m->device_note, "the GPU is not used: %.200s", why.text);
        return rc == LODE_ERR_NOMEM ? rc : 0;
    }
    int stand_ins = 0;
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        struct device_name d;
        if (n >= 6 && strncasecmp(at, "vulkan", 6) == 0)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device", "'%.*s': there is no backend for Vulkan yet; auto, "
                             "cuda, cuda:N or cpu expected", (int)(n < 40 ? n : 40), at);
        if (!parse_device(&d, at, n))
            return lode_fail(err, LODE_ERR_ARG, "--device", "'%.40s'; auto, cuda, cuda:N, several of these with "
                             "commas between, or cpu expected", at);
        if (d.cuda)
            LODE_TRY(add_device(m, true, d.index < 0 ? 0 : d.index, err));
        else if (at != list)
            LODE_TRY(add_device(m, false, ++stand_ins, err));
        at += n;
        if (!*at || (m->n_places > 1 && m->split_mode == LODE_SPLIT_NONE))
            return 0;
    }
}

int lode_split_by_rows(struct lode_model *m, struct lode_error *err) {
    const struct lode_model_opts *o = &m->opts;
    const char *no = NULL;
    struct lode_error why = {0};
    uint32_t n_cuda = 0;
    if (!wants_rows(m))
        return 0;
    for (uint32_t p = 1; p < m->n_places; p++)
        n_cuda += m->devices[p].cuda != NULL;
    if (m->n_places < 3)
        no = m->n_places < 2 ? "no GPU is used" : "there is one GPU";
    else if (n_cuda && n_cuda < m->n_places - 1)
        return lode_fail(err, LODE_ERR_ARG, "--split-mode", "rows are shared out among GPUs alone, or CPUs alone");
    else if (n_cuda && lode_cuda_can_join(&why) < 0)
        no = why.text;
    else if (o->expert_cache || o->layer_cache || m->tensor_devices || m->tensor_split)
        return lode_fail(err, LODE_ERR_ARG, "--split-mode", "row gives every device an equal part of all: it does "
                         "not go with %s", o->expert_cache  ? "--expert-cache"
                                           : o->layer_cache ? "--layer-cache"
                                           : m->tensor_split ? "-ts"
                                                             : "-ot");
    if (no)
        snprintf(m->device_note, sizeof m->device_note, "the model is not split by rows%s: %.180s",
                 m->n_places > 2 ? " but by layers" : "", no);
    return !no;
}

/* ---- where nodes run ---- */

enum { MOST_RULES = 64 };

struct rule { /* of -ot */
    regex_t pattern;
    uint8_t place;
};

struct splitting {
    const struct lode_model *m;
    struct lode_split *out;
    uint8_t *runs;    /* owned; (n_layers + 2): of the embedding, each layer, and what follows */
    uint8_t *experts; /* owned; (n_layers + 2) */
    struct rule rules[MOST_RULES];
    uint32_t n_rules;
    bool brings;
};

static int add_rules(struct splitting *s, struct lode_error *err) {
    for (const char *at = s->m->tensor_devices; at && *at;) {
        const size_t n = strcspn(at, ",");
        const char *equals = memrchr(at, '=', n);
        char pattern[256];
        const size_t len = equals ? (size_t)(equals - at) : 0;
        if (len == 0 || len >= sizeof pattern)
            return lode_fail(err, LODE_ERR_ARG, "-ot", "'%.*s' is not PATTERN=DEVICE",
                             (int)(n < 80 ? n : 80), at);
        const int place = lode_split_place(s->m, equals + 1, n - len - 1);
        if (place < 0)
            return lode_fail(err, LODE_ERR_ARG, "-ot", "'%.*s': no such device is in use; CPU, CUDA0, ... "
                             "expected", (int)(n < 80 ? n : 80), at);
        if (s->n_rules == MOST_RULES)
            return lode_fail(err, LODE_ERR_LIMIT, "-ot", "at most %d patterns", MOST_RULES);
        memcpy(pattern, at, len);
        pattern[len] = 0;
        if (regcomp(&s->rules[s->n_rules].pattern, pattern, REG_EXTENDED | REG_NOSUB) != 0)
            return lode_fail(err, LODE_ERR_ARG, "-ot", "'%.80s' is no regular expression", pattern);
        s->rules[s->n_rules++].place = (uint8_t)place;
        at += n + (at[n] == ',');
    }
    return 0;
}

/* The place of the first rule that a node's weights match; -1: none. */
static int ruled(const struct splitting *s, const struct lode_node *n) {
    for (int k = 0; s->n_rules && k < LODE_MAX_WEIGHTS; k++) {
        if (!n->w[k])
            continue;
        const char *name = s->m->weights[n->w[k]->id].home->name;
        for (uint32_t i = 0; i < s->n_rules; i++)
            if (regexec(&s->rules[i].pattern, name, 0, NULL, 0) == 0)
                return s->rules[i].place;
    }
    return -1;
}

/* Layers on devices: as many of each as its share says. */
static int share_out(struct splitting *s, uint32_t gpu_layers, uint32_t cpu_experts,
                     struct lode_error *err) {
    const struct lode_model *m = s->m;
    const uint32_t n = m->hp.n_layers, n_devices = m->n_places - 1;
    double shares[LODE_PLACES] = {0}, all = 0;
    const char *at = m->tensor_split;
    for (uint32_t d = 0; d < n_devices; d++) {
        char *end = NULL;
        shares[d] = at && *at ? strtod(at, &end)
                    : at      ? 0
                    : m->devices[d + 1].cuda ? (double)lode_cuda_available(m->devices[d + 1].cuda)
                                             : 1;
        if (end && (end == at || (*end != ',' && *end != '/' && *end) || !(shares[d] >= 0)))
            return lode_fail(err, LODE_ERR_ARG, "-ts", "'%.80s': a number of 0 or more for each device, "
                             "with commas between, expected", m->tensor_split);
        if (end)
            at = end + (*end != 0);
        all += shares[d];
    }
    if (n_devices && !(all > 0))
        return lode_fail(err, LODE_ERR_ARG, "-ts", "all shares are 0");
    const uint32_t on = n_devices == 0 ? 0 : gpu_layers > n ? n : gpu_layers, first = n - on;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = 0;
        double sum = shares[0];
        while (i >= first && d + 1 < n_devices && ((double)(i - first) + 0.5) / on >= sum / all)
            sum += shares[++d];
        s->runs[1 + i] = i < first ? LODE_HOST : (uint8_t)(d + 1);
        s->experts[1 + i] = i < cpu_experts ? LODE_HOST : s->runs[1 + i];
    }
    const bool rest = n_devices && gpu_layers > n;
    s->runs[0] = rest ? s->runs[1] : LODE_HOST;
    s->runs[n + 1] = rest ? s->runs[n] : LODE_HOST;
    s->experts[0] = s->runs[0];
    s->experts[n + 1] = s->runs[n + 1];
    return 0;
}

static bool is_view(const struct lode_node *n) {
    return n->op == LODE_OP_SLICE || n->op == LODE_OP_TRACE;
}

/* Ops whose pages or state lie with a layer; its number, or -1. */
static int layer_kept(const struct lode_node *n) {
    switch (n->op) {
    case LODE_OP_KV_PUT: return (int)n->p.kv_put.layer;
    case LODE_OP_ATTENTION: return (int)n->p.attention.layer;
    case LODE_OP_CONV: return (int)n->p.conv.layer;
    case LODE_OP_DELTA: return (int)n->p.delta.layer;
    default: return -1;
    }
}

/* 0, or why the device at `place` cannot run a node. */
static int cannot(const struct splitting *s, const struct lode_node *n, uint8_t place,
                  struct lode_error *why) {
    const struct lode_cuda *c = s->m->devices[place].cuda;
    return c ? lode_cuda_check(c, n, s->m->opts.float_act, why) : 0;
}

static void note(struct splitting *s, const char *what, const struct lode_error *why) {
    if (!*s->out->note)
        snprintf(s->out->note, sizeof s->out->note, "%s run on the CPU: %.180s", what, why->text);
}

/* A layer whose products or cache a device cannot have goes to the host as a whole, its experts by
 * themselves; smaller ops are moved one by one, in place_node. */
static void move_layers(struct splitting *s, const struct lode_graph *g, bool body) {
    uint32_t layer = body ? 0 : s->m->hp.n_layers + 1;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct lode_node *n = g->nodes[i];
        struct lode_error why;
        const bool experts = n->op == LODE_OP_EXPERTS;
        uint8_t *place = experts ? &s->experts[layer] : &s->runs[layer];
        if ((n->op == LODE_OP_LINEAR || n->op == LODE_OP_HEADS || experts || layer_kept(n) >= 0) &&
            cannot(s, n, *place, &why) < 0) {
            note(s, experts ? "experts" : "layers", &why);
            *place = LODE_HOST;
        }
        layer += body && n->op == LODE_OP_TRACE;
    }
}

static uint8_t place_node(struct splitting *s, const struct lode_node *n, uint32_t layer,
                          const uint8_t *places) {
    const int kept = layer_kept(n);
    if (kept >= 0)
        return s->runs[1 + kept];
    if (is_view(n))
        return places[n->in[0]->id];
    uint8_t place = s->runs[layer];
    const int by_name = ruled(s, n);
    bool has_weights = false;
    for (int k = 0; k < LODE_MAX_WEIGHTS; k++)
        has_weights |= n->w[k] != NULL;
    if (by_name >= 0)
        place = (uint8_t)by_name;
    else if (n->op == LODE_OP_EXPERTS)
        place = s->experts[layer];
    else if (!has_weights && n->in[0] &&
             (!n->in[1] || places[n->in[1]->id] == places[n->in[0]->id]))
        place = places[n->in[0]->id]; /* what it reads is all at one place */
    struct lode_error why;
    if (cannot(s, n, place, &why) < 0) {
        note(s, lode_ops[n->op].name, &why);
        return LODE_HOST;
    }
    return place;
}

/* The choice of experts is made where they are: its input goes there anyway. */
static void follow_experts(const struct splitting *s, const struct lode_graph *g, uint8_t *places) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct lode_node *n = g->nodes[i];
        if (n->op != LODE_OP_EXPERTS || places[i] != LODE_HOST)
            continue;
        for (const struct lode_node *r = n->in[1]; r && r != n->in[0] && r->id < i; r = r->in[0]) {
            if (ruled(s, r) < 0)
                places[r->id] = LODE_HOST;
            if (r->op == LODE_OP_LINEAR)
                break;
        }
    }
}

static void note_use(struct splitting *s, const struct lode_node *n, uint32_t rank, uint32_t place) {
    for (int k = 0; k < LODE_MAX_WEIGHTS; k++) {
        const struct lode_operand *w = lode_operand_of(n->w[k], rank);
        for (uint32_t e = 0; w && e < w->count; e++)
            s->out->uses[w->id + e] |= (uint16_t)(1u << place);
    }
}

/* For lode_plan_opts: with --numerics fast.  Ranks all run what the first one does.  What is brought for some steps
 * gives the numbers that the host gives in others. */
static bool takes_floats(const void *user, uint8_t place, const struct lode_operand *w) {
    const struct splitting *s = user;
    const struct lode_model *m = s->m;
    const uint32_t last = place != LODE_HOST && m->n_ranks > 1 ? m->n_ranks : place;
    bool all = s->out->uses[w->id] & 1u << place;
    for (uint32_t p = place; p <= last; p++)
        all = all && m->devices[p].cuda && lode_cuda_takes_floats(m->devices[p].cuda, w);
    return all;
}

/* plan: of a stage, or LODE_MANY */
static int compile(struct splitting *s, int plan, const uint8_t *places, struct lode_error *err) {
    const int stage = plan == LODE_MANY ? LODE_BODY : plan;
    const struct lode_plan_opts opts = {.places = places,
                                        .float_act = s->m->opts.float_act,
                                        .takes_floats = s->m->wanted == LODE_NUMERICS_fast ? takes_floats : NULL,
                                        .user = s};
    return lode_plan_compile(&s->out->plans[plan], &s->m->graphs[stage], &opts, err);
}

/* ---- steps of many rows ---- */

/* Ops that treat each row by itself, by the functions that all places have. */
static bool is_by_row(enum lode_op op) {
    switch (op) {
    case LODE_OP_RMS_NORM: case LODE_OP_LAYER_NORM: case LODE_OP_L2_NORM: case LODE_OP_ROPE: case LODE_OP_UNPAIR:
    case LODE_OP_ADD: case LODE_OP_GLU: case LODE_OP_ACT: case LODE_OP_ROW_GATE: case LODE_OP_SCALE:
    case LODE_OP_TEMPERATURE: case LODE_OP_SOFTCAP: case LODE_OP_PICK: case LODE_OP_CUT: case LODE_OP_JOIN:
        return true;
    default:
        return false;
    }
}

/* Vectors are so small that the device has its own copies. */
static bool is_vector(const struct lode_operand *w) { return w && w->rows == 1 && w->count == 1; }

/* Whether a node that is the host's goes to a device for many rows: products whose numbers are the same there, and
 * what follows them. */
static bool goes_along(const struct splitting *s, const struct lode_node *n, uint8_t at, const uint8_t *places) {
    const struct lode_operand *w = n->w[0];
    struct lode_error why;
    if (cannot(s, n, at, &why) < 0)
        return false;
    if (n->op == LODE_OP_LINEAR)
        return w->count == 1 && !(s->m->fast && lode_fast_of(s->m->fast, w->type));
    bool any = false;
    for (int i = 0; i < 2; i++)
        any |= n->in[i] && places[n->in[i]->id] == at;
    return is_by_row(n->op) && any;
}

/* Of those that have layers. */
static uint8_t first_device(const struct splitting *s) {
    uint8_t at = LODE_PLACES; /* none has any */
    for (uint32_t l = 0; l < s->m->hp.n_layers; l++)
        if (s->runs[1 + l] != LODE_HOST && s->runs[1 + l] < at)
            at = s->runs[1 + l];
    return at;
}

/* places: the body's; changed to those of many rows.  Returns how many products are moved. */
static uint32_t move_along(struct splitting *s, uint8_t at, uint8_t *places) {
    const struct lode_graph *g = &s->m->graphs[LODE_BODY];
    uint32_t n_moved = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct lode_node *n = g->nodes[i];
        if (is_view(n))
            places[i] = places[n->in[0]->id];
        else if (places[i] == LODE_HOST && goes_along(s, n, at, places))
            places[i] = at;
    }
    follow_experts(s, g, places);
    for (uint32_t i = 0; i < g->n_nodes; i++) { /* with the vectors that they need */
        const struct lode_node *n = g->nodes[i];
        n_moved += places[i] == at && n->op == LODE_OP_LINEAR && !is_vector(n->w[0]) &&
                   !(s->out->uses[n->w[0]->id] & 1u << at);
        for (int k = 0; places[i] == at && k < LODE_MAX_WEIGHTS; k++)
            if (is_vector(n->w[k]))
                s->out->uses[n->w[k]->id] |= (uint16_t)(1u << at);
    }
    return n_moved;
}

static int split_many(struct splitting *s, uint8_t *places, struct lode_error *err) {
    struct lode_plan *plan = &s->out->plans[LODE_MANY];
    const uint8_t at = first_device(s);
    if (!s->brings || at == LODE_PLACES || move_along(s, at, places) == 0)
        return 0;
    LODE_TRY(compile(s, LODE_MANY, places, err));
    for (uint32_t i = 0; i < plan->n_instrs; i++)
        for (uint32_t k = 0; k < plan->instrs[i].n_parts; k++) {
            struct lode_plan_part *p = &plan->parts[plan->instrs[i].first_part + k];
            p->brought = plan->instrs[i].op == LODE_OP_LINEAR && plan->instrs[i].place != LODE_HOST &&
                         !(s->out->uses[p->w->id] & 1u << plan->instrs[i].place);
        }
    return 0;
}

static int split_stage(struct splitting *s, enum lode_stage stage, struct lode_error *err) {
    const struct lode_graph *g = &s->m->graphs[stage];
    const bool body = stage == LODE_BODY;
    uint8_t *places = LODE_NEW_ARRAY(uint8_t, g->n_nodes);
    if (!places)
        return lode_fail_nomem(err, "split");
    uint32_t layer = body ? 0 : s->m->hp.n_layers + 1;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        places[i] = place_node(s, g->nodes[i], layer, places);
        layer += body && g->nodes[i]->op == LODE_OP_TRACE;
    }
    follow_experts(s, g, places);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        note_use(s, g->nodes[i], 0, places[i]);
    int rc = compile(s, stage, places, err);
    if (rc == 0 && body)
        rc = split_many(s, places, err);
    lode_free(places);
    return rc;
}

/* All of it at every device; the graphs are those of the first. */
static int split_rows(struct splitting *s, uint32_t gpu_layers, uint32_t cpu_experts, struct lode_error *err) {
    const struct lode_model *m = s->m;
    if (gpu_layers <= m->hp.n_layers || cpu_experts)
        return lode_fail(err, LODE_ERR_ARG, "--split-mode", "row gives every device an equal part of all: no "
                         "layers (-ngl) or experts (--cpu-moe) are left to the CPU");
    for (int i = 0; i < LODE_STAGES; i++) {
        const struct lode_graph *g = &m->graphs[i];
        uint8_t *places = LODE_NEW_ARRAY(uint8_t, g->n_nodes);
        if (!places)
            return lode_fail_nomem(err, "split");
        memset(places, 1, g->n_nodes);
        int rc = 0;
        for (uint32_t k = 0; rc == 0 && k < g->n_nodes; k++) {
            rc = cannot(s, g->nodes[k], 1, err);
            for (uint32_t p = 1; p <= m->n_ranks; p++)
                note_use(s, g->nodes[k], p - 1, p);
        }
        if (rc == 0)
            rc = compile(s, i, places, err);
        lode_free(places);
        LODE_TRY(rc);
        s->out->plans[i].n_ranks = m->n_ranks;
        s->out->plans[i].n_layers = m->hp.n_layers;
    }
    for (uint32_t i = 0; i < m->n_weights; i++)
        s->out->uses[i] |= s->out->uses[i] ? 0 : LODE_USED_IN_PARTS;
    for (uint32_t l = 0; l < m->n_kept; l++)
        s->out->layers[l] = (uint8_t)(1 + l / m->hp.n_layers);
    s->out->n_gpu_layers = m->hp.n_layers;
    return 0;
}

static int split(struct splitting *s, uint32_t gpu_layers, uint32_t cpu_experts,
                 struct lode_error *err) {
    const struct lode_model *m = s->m;
    const uint32_t n = m->hp.n_layers;
    if (m->n_ranks)
        return split_rows(s, gpu_layers, cpu_experts, err);
    LODE_TRY(add_rules(s, err));
    LODE_TRY(share_out(s, gpu_layers, cpu_experts, err));
    for (int i = 0; i < LODE_STAGES; i++)
        move_layers(s, &m->graphs[i], i == LODE_BODY);
    for (int i = 0; i < LODE_STAGES; i++)
        LODE_TRY(split_stage(s, (enum lode_stage)i, err));
    for (uint32_t l = 0; l < n; l++) {
        s->out->layers[l] = s->runs[1 + l];
        s->out->n_gpu_layers += s->runs[1 + l] != LODE_HOST;
    }
    return 0;
}

/* The first GPU that has layers, where the host has experts. */
static uint8_t find_beside(const struct lode_model *m, const struct lode_split *s) {
    const struct lode_plan *body = &s->plans[LODE_BODY];
    bool any = false;
    uint8_t at = LODE_HOST;
    for (uint32_t i = 0; i < body->n_instrs; i++)
        any |= body->instrs[i].op == LODE_OP_EXPERTS && body->instrs[i].place == LODE_HOST;
    for (uint32_t l = 0; any && l < m->hp.n_layers; l++)
        if (m->devices[s->layers[l]].cuda && (at == LODE_HOST || s->layers[l] < at))
            at = s->layers[l];
    return at;
}

int lode_split_make(struct lode_split *out, const struct lode_model *m, uint32_t gpu_layers,
                    uint32_t cpu_experts, bool beside, bool brings, struct lode_error *err) {
    struct splitting *s = LODE_NEW(struct splitting);
    *out = (struct lode_split){.layers = LODE_NEW_ARRAY(uint8_t, m->n_kept),
                               .uses = LODE_NEW_ARRAY(uint16_t, m->n_weights)};
    int rc = 0;
    if (s) {
        *s = (struct splitting){.m = m, .out = out, .brings = brings,
                                .runs = LODE_NEW_ARRAY(uint8_t, m->hp.n_layers + 2),
                                .experts = LODE_NEW_ARRAY(uint8_t, m->hp.n_layers + 2)};
        rc = s->runs && s->experts && out->layers && out->uses
                 ? split(s, gpu_layers, cpu_experts, err)
                 : lode_fail_nomem(err, "split");
        for (uint32_t i = 0; i < s->n_rules; i++)
            regfree(&s->rules[i].pattern);
        lode_free(s->runs);
        lode_free(s->experts);
    } else {
        rc = lode_fail_nomem(err, "split");
    }
    lode_free(s);
    if (rc == 0 && beside && m->beside.n_layers)
        out->plans[LODE_BODY].beside = find_beside(m, out);
    if (rc < 0)
        lode_split_free(out);
    return rc;
}

void lode_split_free(struct lode_split *s) {
    for (int i = 0; i < LODE_PLANS; i++)
        lode_plan_deinit(&s->plans[i]);
    lode_free(s->layers);
    lode_free(s->uses);
    *s = (struct lode_split){0};
}
