/* A program with Python in it. The declaration is that of CPython's Include/pylifecycle.h. */
int Py_BytesMain(int argc, char **argv);

int main(int argc, char **argv)
{
    return Py_BytesMain(argc, argv);
}
