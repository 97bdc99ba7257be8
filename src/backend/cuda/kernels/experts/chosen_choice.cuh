/* chosen_choice.cuh - the choice of experts in the launch that is the first to need it: gate and up's. */
#ifndef LODE_CUDA_CHOSEN_CHOICE_CUH
#define LODE_CUDA_CHOSEN_CHOICE_CUH

#include "chosen.cuh"
#include "route.cuh"

/* Waits for the launch before, and lets the next one come: it may read the route before it waits, which is there by then, or is when
 * choose_here lets it.  The route, if it is given. */
DEVICE struct route_of begin_chosen(const struct lode_cuda_chosen_in_args &s) {
    struct route_of route;
    wait_for_last();
    if (!s.chooses || blockIdx.x)
        let_next_come();
    if (!s.chooses)
        route = read_route(s.a);
    return route;
}
/* By every block of threads for itself; the first one leaves it for the launches to come.  Ends with a barrier. */
DEVICE struct route_of choose_here(const struct lode_cuda_chosen_in_args &s) {
    struct quick_choice *q = (struct quick_choice *)((uint8_t *)row_mem + s.choice_at);
    const uint32_t lane = threadIdx.x % 32, i = lane < s.a.n_used ? lane : s.a.n_used - 1;
    choose_quick(s.choice, at<const float>(s.choice.x.data), q);
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        put_choice(s.choice, q, at<float>(s.choice.y.data));
        __threadfence();
        __syncwarp(); /* each lane's own, before any says so */
        let_next_come();
    }
    return {(int)q->ids[i], s.a.weigh_input ? quick_weight(s.choice, q) : 0};
}

#endif
