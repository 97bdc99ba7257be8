/* fake_nccl.c - see fake_nccl.h. */
#pragma GCC visibility push(default) /* or nobody would find these */

#include "fake_nccl.h"

#include "../fake_cuda/fake_cuda.h"

/* ncclResult_t */
enum { OK = 0, FAILED = 1, BAD_ARGUMENT = 4, BAD_USE = 5 };
enum { MOST_TEAMS = 16, MOST_CALLS = 64, FLOAT = 7 };

struct comm {
    struct team *team;
    uint32_t rank;
};
static struct team {
    struct fake_meeting meeting;
    struct comm comms[FAKE_RANKS];
    uint32_t n_live, n_aborted;
} teams[MOST_TEAMS];

static unsigned n_connections;
unsigned fake_nccl_connections(void) { return n_connections; }

struct call {
    struct comm *comm;
    uint64_t src, dst;
    size_t n;
    void *stream;
};
static _Thread_local struct {
    unsigned depth, n;
    struct call calls[MOST_CALLS];
} group;

int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = 22809;
    return OK;
}

const char *ncclGetErrorString(int rc);
const char *ncclGetErrorString(int rc) {
    return rc == FAILED ? "unhandled cuda error" : "invalid usage";
}

int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclCommInitAll(void **comms, int n, const int *devices) {
    (void)devices;
    if (fake_cuda_refuses_exchange())
        return FAILED;
    for (struct team *t = teams; t < teams + MOST_TEAMS; t++)
        if (!t->n_live) {
            *t = (struct team){.meeting = {.n = (uint32_t)n}, .n_live = (uint32_t)n};
            for (int r = 0; r < n; r++) {
                t->comms[r] = (struct comm){t, (uint32_t)r};
                comms[r] = &t->comms[r];
            }
            fake_cuda.n_live += (uint64_t)n;
            n_connections++;
            return OK;
        }
    return BAD_USE;
}

/* The last one that goes takes the rest along. */
static int leave(void *comm, bool abort) {
    struct team *t = ((struct comm *)comm)->team;
    t->n_aborted += abort;
    fake_cuda.n_live--;
    if (--t->n_live == 0)
        fake_cuda_part(&t->meeting, t->n_aborted > 0);
    return OK;
}

int ncclCommDestroy(void *comm);
int ncclCommDestroy(void *comm) {
    return leave(comm, false);
}

int ncclCommAbort(void *comm);
int ncclCommAbort(void *comm) {
    return leave(comm, true);
}

int ncclCommGetAsyncError(void *comm, int *error);
int ncclCommGetAsyncError(void *comm, int *error) {
    (void)comm;
    *error = OK;
    return OK;
}

int ncclGroupStart(void);
int ncclGroupStart(void) {
    if (fake_cuda_refuses_exchange())
        return FAILED;
    group.depth++;
    group.n = 0;
    return OK;
}

int ncclAllGather(const void *send, void *receive, size_t n, int type, void *comm, void *stream);
int ncclAllGather(const void *send, void *receive, size_t n, int type, void *comm, void *stream) {
    if (fake_cuda_refuses_exchange())
        return FAILED;
    if (type != FLOAT || !group.depth || group.n == MOST_CALLS)
        return BAD_ARGUMENT;
    group.calls[group.n++] = (struct call){comm, (uintptr_t)send, (uintptr_t)receive, n * 4, stream};
    return OK;
}

/* All of a group's calls, or none where one of them was wrong. */
int ncclGroupEnd(void);
int ncclGroupEnd(void) {
    if (group.depth == 0)
        return BAD_USE;
    group.depth--;
    if (fake_cuda_refuses_exchange() || group.n != group.calls[0].comm->team->meeting.n)
        return FAILED;
    for (unsigned i = 0; i < group.n; i++) {
        const struct call *c = &group.calls[i];
        if (fake_cuda_meet(&c->comm->team->meeting, c->comm->rank, c->stream, c->src, c->dst, c->n) != OK)
            return FAILED;
    }
    return OK;
}
