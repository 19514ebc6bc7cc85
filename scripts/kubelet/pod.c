/* The program of all containers in scripts/kubelet.sh: it waits, or when it is told to be busy, works for 100 ms of each second.
 * Static, so that it needs no other file in its image. As the first process of a container it must ask for the signal that
 * ends it. */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int number, char **words) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    if (number < 2 || strcmp(words[1], "busy") != 0)
        for (;;)
            pause();
    for (;;) {
        for (double until = used() + 0.1; used() < until;)
            ;
        usleep(900000);
    }
}
