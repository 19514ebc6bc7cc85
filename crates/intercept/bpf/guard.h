// The guards, which remain when the holder is gone: pods whose fate is to be refused send and receive nothing
// unprotected. The guards run after the programs that rewrite destinations. They refuse traffic to the mesh that was
// not rewritten. They are pinned, together with the tables that they read.
#pragma once

// Each guard has a table of programs for a tail call. The kernel empties such a table some milliseconds after the
// last process has closed it, even when a pinned program still uses it. So the tail call succeeds only while the
// holder lives. Datagrams pass then, because the programs before have decided about them.
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

// Attached to the namespace of each guarded pod. When several programs are attached, a socket chosen by one of them
// wins over a drop by another. So this one drops connections for which `arrive` has not chosen a socket.
SEC("sk_lookup/guard_arrive")
int guard_arrive(struct bpf_sk_lookup *ctx)
{
    struct address to;
    if (ctx->protocol != IPPROTO_TCP)
        return SK_PASS;
    ADDRESS(&to, ctx, local);
    if (is_from_within(ctx, &to))
        return SK_PASS;
    // A link-local address, or one that was added after the holder ended or a moment before.
    __u64 *netns = bpf_map_lookup_elem(&addresses, &to);
    if (!netns)
        return SK_DROP;
    // Check the flag, too: a pod whose guard was removed must be reachable at once, while the kernel takes its time
    // to detach this program.
    struct pod *pod = bpf_map_lookup_elem(&pods, netns);
    if (!pod || !(pod->flags & POD_GUARDED) || is_among(pod->inbound, pod->inbound_ranges, ctx->local_port))
        return SK_PASS;
    return SK_DROP;
}
