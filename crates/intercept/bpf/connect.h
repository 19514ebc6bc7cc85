// Outbound connections and datagrams of pods.
#pragma once

// Return values of cgroup programs.
#define REFUSE 0
#define ALLOW 1

static __always_inline int refuse(void)
{
    bpf_set_retval(-ECONNREFUSED);
    return REFUSE;
}

// DNS queries, without which a program would not get as far as being refused, and ICMP.
static __always_inline bool is_harmless(struct bpf_sock_addr *ctx)
{
    return (ctx->protocol == IPPROTO_UDP && ctx->user_port == bpf_htons(DNS_PORT)) ||
           ctx->protocol == IPPROTO_ICMP || ctx->protocol == IPPROTO_ICMPV6;
}

// Datagrams, and everything else that is not TCP, are not carried by the mesh. They may pass where a connection would
// not be refused.
static __always_inline bool datagram(struct bpf_sock_addr *ctx, __u64 netns, struct pod *pod,
                                     const struct address *to)
{
    return is_served(pod) || pod->fate == FATE_PASS || is_harmless(ctx) ||
           !is_concerned(netns, pod, to, bpf_ntohs(ctx->user_port));
}

enum decision {
    DECIDED_ALLOW,
    DECIDED_REFUSE,
    DECIDED_REWRITE,
};

static __always_inline enum decision decide(struct bpf_sock_addr *ctx, const struct address *to,
                                            __u16 *outbound_port)
{
    __u64 netns = bpf_get_netns_cookie(ctx);
    struct pod *pod = bpf_map_lookup_elem(&pods, &netns);
    if (!pod || (own_cgroup && bpf_get_current_cgroup_id() == own_cgroup))
        goto untouched;
    if (ctx->protocol != IPPROTO_TCP || !ctx->sk)
        return datagram(ctx, netns, pod, to) ? DECIDED_ALLOW : DECIDED_REFUSE;
    if (!is_concerned(netns, pod, to, bpf_ntohs(ctx->user_port)))
        goto untouched;
    if (!is_served(pod)) {
        if (pod->fate != FATE_PASS)
            return DECIDED_REFUSE;
        goto untouched;
    }
    struct pending *pending = bpf_map_lookup_elem(&pendings, &netns);
    __u32 *all = all_handshakes();
    if (!pending || !all)
        return DECIDED_REFUSE;
    if (!has_room(pending->count, *all)) {
        count_full(FULL_HANDSHAKES);
        return DECIDED_REFUSE;
    }
    struct destination *destination =
        bpf_sk_storage_get(&destinations, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!destination)
        return DECIDED_REFUSE;
    destination->address = *to;
    destination->port = ctx->user_port;
    destination->pod = pod->id;
    *outbound_port = pod->outbound_port;
    return DECIDED_REWRITE;

untouched:
    // A socket that is used again may still have the destination of its earlier connection.
    if (ctx->sk)
        bpf_sk_storage_delete(&destinations, ctx->sk);
    return DECIDED_ALLOW;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
    struct address to;
    __u16 outbound_port = 0;
    mapped(&to, ctx->user_ip4);
    switch (decide(ctx, &to, &outbound_port)) {
    case DECIDED_REWRITE:
        ctx->user_ip4 = bpf_htonl(0x7f000001);
        ctx->user_port = outbound_port;
        return ALLOW;
    case DECIDED_REFUSE:
        return refuse();
    default:
        return ALLOW;
    }
}

static __always_inline void address6(struct address *to, struct bpf_sock_addr *ctx)
{
    to->words[0] = ctx->user_ip6[0];
    to->words[1] = ctx->user_ip6[1];
    to->words[2] = ctx->user_ip6[2];
    to->words[3] = ctx->user_ip6[3];
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
    struct address to;
    __u16 outbound_port = 0;
    address6(&to, ctx);
    switch (decide(ctx, &to, &outbound_port)) {
    case DECIDED_REWRITE:
        ctx->user_ip6[0] = 0;
        ctx->user_ip6[1] = 0;
        // An IPv4 destination stays IPv4: the pod may have no IPv6.
        ctx->user_ip6[2] = is_v4(&to) ? bpf_htonl(0xffff) : 0;
        ctx->user_ip6[3] = is_v4(&to) ? bpf_htonl(0x7f000001) : bpf_htonl(1);
        ctx->user_port = outbound_port;
        return ALLOW;
    case DECIDED_REFUSE:
        return refuse();
    default:
        return ALLOW;
    }
}

static __always_inline int send(struct bpf_sock_addr *ctx, const struct address *to)
{
    __u64 netns = bpf_get_netns_cookie(ctx);
    struct pod *pod = bpf_map_lookup_elem(&pods, &netns);
    if (!pod || (own_cgroup && bpf_get_current_cgroup_id() == own_cgroup))
        return ALLOW;
    return datagram(ctx, netns, pod, to) ? ALLOW : refuse();
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
    struct address to;
    mapped(&to, ctx->user_ip4);
    return send(ctx, &to);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
    struct address to;
    address6(&to, ctx);
    return send(ctx, &to);
}

// getpeername() on a rewritten socket returns the destination that the program asked for.
SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
    struct destination *destination = ctx->sk ? bpf_sk_storage_get(&destinations, ctx->sk, 0, 0) : 0;
    if (destination) {
        ctx->user_ip4 = destination->address.words[3];
        ctx->user_port = destination->port;
    }
    return ALLOW;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
    struct destination *destination = ctx->sk ? bpf_sk_storage_get(&destinations, ctx->sk, 0, 0) : 0;
    if (destination) {
        ctx->user_ip6[0] = destination->address.words[0];
        ctx->user_ip6[1] = destination->address.words[1];
        ctx->user_ip6[2] = destination->address.words[2];
        ctx->user_ip6[3] = destination->address.words[3];
        ctx->user_port = destination->port;
    }
    return ALLOW;
}
