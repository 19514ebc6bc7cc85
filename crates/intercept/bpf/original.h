// Answers the socket option for the original destination like netfilter does: the program that asks need not
// know what redirected the connection.
#pragma once

#define SOL_IP 0
#define SOL_IPV6 41
#define PAGE 4096
#define ORIGINAL_DST 80 // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST

struct answer4 {
    __u16 family;
    __u16 port;
    __u32 address;
    __u8 zero[8];
};

struct answer6 {
    __u16 family;
    __u16 port;
    __u32 flow;
    struct address address;
    __u32 scope;
};

SEC("cgroup/getsockopt")
int original(struct bpf_sockopt *ctx)
{
    // The kernel gives us at most a page of a longer option value. Setting `optlen` to 0 leaves the value unchanged.
    if (ctx->optlen > PAGE)
        ctx->optlen = 0;
    if (ctx->optname != ORIGINAL_DST || (ctx->level != SOL_IP && ctx->level != SOL_IPV6) || !ctx->sk)
        return 1;
    struct destination *destination = bpf_sk_storage_get(&destinations, ctx->sk, 0, 0);
    if (!destination)
        return 1;
    // Each address family is reported at its own level only.
    if (is_v4(&destination->address) != (ctx->level == SOL_IP))
        return 1;
    // Read once for both branches, see READ.
    void *start = ctx->optval;
    void *end = ctx->optval_end;
    asm volatile("" : "+r"(start), "+r"(end));
    if (ctx->level == SOL_IP) {
        struct answer4 *answer = start;
        if ((void *)(answer + 1) > end)
            return 1;
        *answer = (struct answer4){
            .family = AF_INET,
            .port = destination->port,
            .address = destination->address.words[3],
        };
        ctx->optlen = sizeof(*answer);
    } else {
        struct answer6 *answer = start;
        if ((void *)(answer + 1) > end)
            return 1;
        *answer = (struct answer6){
            .family = AF_INET6,
            .port = destination->port,
            .address = destination->address,
        };
        ctx->optlen = sizeof(*answer);
    }
    ctx->retval = 0;
    return 1;
}
