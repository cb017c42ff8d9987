/* A program that exports some symbols of Python. */
#include <stdio.h>

int Py_IsInitialized(void)
{
    return 0;
}

#ifdef RUNTIME
struct {
    char cookie[8];
    unsigned long version, free_threaded;
    char rest[8192];
} _PyRuntime = {RUNTIME};
#endif

#ifdef VERSION
const unsigned long Py_Version = VERSION;
#endif

int main(void)
{
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
