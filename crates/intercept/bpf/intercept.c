// The BPF programs for intercepted pods. One object file; each header covers one topic.
//
// The identity of a pod is its network namespace: the key of everything that is known about a pod is the
// namespace's cookie, which the kernel never reuses.
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "verdict.h"
#include "connect.h"
#include "handshake.h"
#include "original.h"
#include "inbound.h"
#include "guard.h"
#include "packets.h"

char apache[] SEC("license") = "Apache-2.0";
