// What is left when the holder is gone: pods that must not be heard unprotected stay silent. The guards come after
// the programs that rewrite, see what those left as it was, and refuse it if it concerns the mesh. They are pinned,
// and with them the tables that they read.
#pragma once

// One guard for each hook, and one table that ends with the holder for each: the kernel empties such a table when no
// process has it open any more, whatever keeps its programs (it takes some milliseconds for that). Datagrams pass while
// the holder lives, because then the hooks before decide.
#define ALIVE(name)                                  \
    struct {                                         \
        __uint(type, BPF_MAP_TYPE_PROG_ARRAY);       \
        __uint(max_entries, 1);                      \
        __type(key, __u32);                          \
        __type(value, __u32);                        \
    } name SEC(".maps")

ALIVE(alive_connect4);
ALIVE(alive_connect6);
ALIVE(alive_sendmsg4);
ALIVE(alive_sendmsg6);

static __always_inline struct pod *guarded(struct bpf_sock_addr *ctx, const struct address *to)
{
    __u64 netns = bpf_get_netns_cookie(ctx);
    struct pod *pod = bpf_map_lookup_elem(&pods, &netns);
    if (!pod || !(pod->flags & POD_GUARDED) || (own_cgroup && bpf_get_current_cgroup_id() == own_cgroup))
        return 0;
    return is_concerned(netns, pod, to, bpf_ntohs(ctx->user_port)) ? pod : 0;
}

SEC("cgroup/connect4")
int guard_connect4(struct bpf_sock_addr *ctx)
{
    struct address to;
    mapped(&to, ctx->user_ip4);
    if (is_harmless(ctx) || !guarded(ctx, &to))
        return ALLOW;
    if (ctx->protocol != IPPROTO_TCP)
        bpf_tail_call(ctx, &alive_connect4, 0);
    return refuse();
}

SEC("cgroup/connect6")
int guard_connect6(struct bpf_sock_addr *ctx)
{
    struct address to;
    address6(&to, ctx);
    if (is_harmless(ctx) || !guarded(ctx, &to))
        return ALLOW;
    if (ctx->protocol != IPPROTO_TCP)
        bpf_tail_call(ctx, &alive_connect6, 0);
    return refuse();
}

SEC("cgroup/sendmsg4")
int guard_sendmsg4(struct bpf_sock_addr *ctx)
{
    struct address to;
    mapped(&to, ctx->user_ip4);
    if (is_harmless(ctx) || !guarded(ctx, &to))
        return ALLOW;
    bpf_tail_call(ctx, &alive_sendmsg4, 0);
    return refuse();
}

SEC("cgroup/sendmsg6")
int guard_sendmsg6(struct bpf_sock_addr *ctx)
{
    struct address to;
    address6(&to, ctx);
    if (is_harmless(ctx) || !guarded(ctx, &to))
        return ALLOW;
    bpf_tail_call(ctx, &alive_sendmsg6, 0);
    return refuse();
}

SEC("cgroup/connect4")
int yield_connect4(struct bpf_sock_addr *ctx)
{
    return ALLOW;
}

SEC("cgroup/connect6")
int yield_connect6(struct bpf_sock_addr *ctx)
{
    return ALLOW;
}

SEC("cgroup/sendmsg4")
int yield_sendmsg4(struct bpf_sock_addr *ctx)
{
    return ALLOW;
}

SEC("cgroup/sendmsg6")
int yield_sendmsg6(struct bpf_sock_addr *ctx)
{
    return ALLOW;
}

// In the namespace of each guarded pod. Where several programs are attached, a socket that one of them chose wins
// over a drop, so that this one drops what `arrive` did not choose.
SEC("sk_lookup/guard_arrive")
int guard_arrive(struct bpf_sk_lookup *ctx)
{
    struct address to;
    if (ctx->protocol != IPPROTO_TCP)
        return SK_PASS;
    ADDRESS(&to, ctx, local);
    if (is_from_within(ctx, &to))
        return SK_PASS;
    // Of an interface's own making, or come since the holder went, if not a moment before.
    __u64 *netns = bpf_map_lookup_elem(&addresses, &to);
    if (!netns)
        return SK_DROP;
    // Asked here and not only by being attached: who is no longer guarded is so at once, while the kernel takes its
    // time to detach.
    struct pod *pod = bpf_map_lookup_elem(&pods, netns);
    if (!pod || !(pod->flags & POD_GUARDED) || is_among(pod->inbound, pod->inbound_ranges, ctx->local_port))
        return SK_PASS;
    return SK_DROP;
}
