// Inbound: connections that arrive in a pod's network namespace.
#pragma once

#define LOOPBACK_IFINDEX 1

static __always_inline bool is_same(const struct address *a, const struct address *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2] &&
           a->words[3] == b->words[3];
}

// What the pod says to itself, and what the proxy says to it. Both travel over lo, but what arrives at an address of
// another interface may be said to have come in there, hence three questions.
static __always_inline bool is_from_within(struct bpf_sk_lookup *ctx, const struct address *to)
{
    struct visit visit = {.to = *to, .port = bpf_ntohs(ctx->remote_port), .to_port = ctx->local_port};
    ADDRESS(&visit.from, ctx, remote);
    return ctx->ingress_ifindex == LOOPBACK_IFINDEX || is_same(to, &visit.from) ||
           bpf_map_lookup_elem(&visits, &visit);
}

static __always_inline struct pod *pod_at(const struct address *to)
{
    __u64 *netns = bpf_map_lookup_elem(&addresses, to);
    return netns ? bpf_map_lookup_elem(&pods, netns) : 0;
}

SEC("sk_lookup/arrive")
int arrive(struct bpf_sk_lookup *ctx)
{
    struct address to;
    if (ctx->protocol != IPPROTO_TCP)
        return SK_PASS;
    ADDRESS(&to, ctx, local);
    if (is_from_within(ctx, &to))
        return SK_PASS;
    struct pod *pod = pod_at(&to);
    if (!pod || is_among(pod->inbound, pod->inbound_ranges, ctx->local_port))
        return SK_PASS;
    if (!is_served(pod))
        return pod->fate == FATE_PASS ? SK_PASS : SK_DROP;
    struct bpf_sock *listener = bpf_map_lookup_elem(&listeners, &to);
    if (!listener)
        return SK_DROP;
    // Another program of the namespace may have chosen before; what the mesh says goes.
    long failed = bpf_sk_assign(ctx, listener, BPF_SK_LOOKUP_F_REPLACE);
    bpf_sk_release(listener);
    return failed ? SK_DROP : SK_PASS;
}
