/* The program of all containers in scripts/kubelet.sh: it waits, or uses a processor when it is told to. Static, so that it
 * needs no other file in its image. As the first process of a container it must ask for the signal that ends it. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

int main(int number, char **words) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    if (number > 1 && strcmp(words[1], "busy") == 0)
        for (volatile unsigned turns = 0;; turns++)
            ;
    for (;;)
        pause();
}
