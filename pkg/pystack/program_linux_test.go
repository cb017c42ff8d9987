package pystack

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// programHead is the beginning of a random program. ready is called right before a program blocks.
const programHead = `import asyncio, contextlib, fcntl, functools, os, queue, select, signal, socket, subprocess, sys, tempfile
import threading, time

def ready():
    print("ready", flush=True)

def started(work):
    begun = threading.Event()
    def body():
        begun.set()
        work()
    threading.Thread(target=body, daemon=True).start()
    begun.wait()
`

// calls are ways of calling a function. Each defines a function f# that calls CALL. # is a number that differs
// everywhere in the program, and LEVELS a random one.
var calls = []string{
	"def f#():\n    CALL()\n",
	"def f#(a=1, *args, **kwargs):\n    return (a,\n            args,\n            CALL(),\n            kwargs)\n",
	"class C#:\n    def method(self):\n        CALL()\n\n    class Inner:\n        @staticmethod\n        def static():\n" +
		"            C#().method()\n\nf# = C#.Inner.static\n",
	"class C#:\n    @classmethod\n    def made(cls):\n        return cls()\n    def __init__(self):\n        CALL()\n" +
		"def f#(): C#.made()\n",
	"class C#:\n    @property\n    def value(self):\n        return CALL()\n    def __getitem__(self, i):\n" +
		"        return self.value\n    def __call__(self):\n        return self[1]\n\nf# = C#()\n",
	"class C#:\n    def __add__(self, other):\n        CALL()\n    def __eq__(self, other):\n        return self + other\n" +
		"def f#():\n    C#() == 1\n",
	"def g#():\n    yield 1\n    yield CALL()\ndef f#():\n    for i in g#():\n        i = 2\n",
	"def g#():\n    yield 1\n    yield CALL()\ndef h#():\n    yield from g#()\ndef f#():\n    list(h#())\n",
	"def g#():\n    got = yield 1\n    CALL()\ndef f#():\n    g = g#()\n    g.send(None)\n    g.send(2)\n",
	"def f#():\n    return [\n        CALL()\n        for x in range(3)\n        if x\n    ]\n",
	"def f#():\n    return {x: CALL() for x in {y for y in (1, 2)}}\n",
	"def f#():\n    any(CALL() for x in (1,))\n",
	"def decorate#(f):\n    @functools.wraps(f)\n    def wrapper(*args):\n        return f(*args)\n    return wrapper\n" +
		"@decorate#\n@decorate#\ndef f#():\n\n    CALL()\n",
	"def f#(n=LEVELS):\n    if n:\n        return f#(n - 1)\n    CALL()\n",
	"f# = lambda: (lambda x: CALL())(1)\n",
	"def f#():\n    sorted([2, 1], key=lambda x: CALL())\n",
	"def f#():\n    list(map(functools.partial(lambda a, b: CALL(), 1), [2]))\n",
	"def f#():\n    exec(compile('\\n\\ndef generated():\\n    CALL()\\n\\ngenerated()', '<generated #>', 'exec'), globals())\n",
	"def f#():\n    eval('[1,\\n CALL()]')\n",
	"@contextlib.contextmanager\ndef manager#():\n    yield CALL()\ndef f#():\n    with manager#() as m:\n        pass\n",
	"class C#:\n    def __enter__(self):\n        return self\n    def __exit__(self, *args):\n        CALL()\n" +
		"def f#():\n    with C#() as c:\n        del c\n",
	"def f#():\n    lock = threading.RLock()\n    with lock, lock:\n        x = 1\n        CALL()\n",
	"def f#():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        CALL()\n",
	"def f#():\n    try:\n        raise ValueError('#')\n    finally:\n        CALL()\n",
	"def f#():\n    started(threading.Event().wait)\n    started(lambda: time.sleep(1000))\n" +
		"    CALL()\n",
	"async def step#():\n    CALL()\nasync def main#():\n    await step#()\ndef f#():\n    main#().send(None)\n",
	"async def give#():\n    yield 1\n    CALL()\nasync def main#():\n    async for x in give#():\n        x = 2\n" +
		"def f#():\n    main#().send(None)\n",
	"class M#(type):\n    def __new__(cls, name, bases, space):\n        CALL()\ndef f#():\n    class C#(metaclass=M#):\n" +
		"        pass\n",
	"def f#():\n    class C#:\n        x = 1\n        CALL()\n",
	"def f#():\n    if (x := 3) > 2:\n        while x:\n            x -= 1\n            f'{x} {CALL()}'\n",
	"def f#():\n    def größe():\n        def 内():\n            CALL()\n        内()\n    größe()\n",
	"def f#():\n" + strings.Repeat("\n", 300) + "    (\n        len,\n" + strings.Repeat("\n", 40) + "        CALL(),\n    )\n",
	"def f#():\n    " + strings.Repeat("x = 1; ", 400) + "CALL()\n",
}

// outermost are calls that may happen only once in a program, as its first one.
var outermost = []string{
	"async def main#():\n    await asyncio.sleep(0)\n    CALL()\ndef f#():\n    asyncio.run(main#())\n",
	"def handler#(signum, frame):\n    CALL()\ndef f#():\n    signal.signal(signal.SIGUSR1, handler#)\n" +
		"    os.kill(os.getpid(), signal.SIGUSR1)\n    time.sleep(1000)\n",
}

// blocks are ways of waiting forever. They define the function block.
var blocks = []string{
	"def block():\n    lock = threading.Lock()\n    lock.acquire()\n    ready()\n    lock.acquire()\n",
	"def block():\n    lock = threading.Lock()\n    lock.acquire()\n    ready()\n    with lock:\n        pass\n",
	"def block():\n    a, b = socket.socketpair()\n    ready()\n    a.recv(1)\n",
	"def block():\n    ready()\n    time.sleep(\n        1000\n    )\n",
	"def block():\n    ready()\n    select.select([], [], [])\n",
	"def block():\n    r, w = os.pipe()\n    ready()\n    select.select([r], [], [], None)\n",
	"def block():\n    e = select.epoll()\n    ready()\n    e.poll()\n",
	"def block():\n    p = select.poll()\n    ready()\n    p.poll(1000000)\n",
	"def block():\n    ready()\n    signal.pause()\n",
	"def block():\n    r, w = os.pipe()\n    ready()\n    os.read(r, 1)\n",
	"def block():\n    r, w = os.pipe()\n    ready()\n    while True: os.write(w, bytes(1 << 16))\n",
	"def block():\n    ready()\n    sys.stdin.read()\n",
	"def block():\n    ready()\n    input()\n",
	"def block():\n    ready()\n    queue.Queue().get()\n",
	"def block():\n    ready()\n    threading.Event().wait()\n",
	"def block():\n    c = threading.Condition()\n    with c:\n        ready()\n        c.wait()\n",
	"def block():\n    t = threading.Thread(target=time.sleep, args=(1000,), daemon=True)\n    t.start()\n    ready()\n    t.join()\n",
	"def block():\n    child = subprocess.Popen([sys.executable, '-c', 'open(0).read()'], stdin=subprocess.PIPE)\n    ready()\n" +
		"    child.wait()\n",
	"def block():\n    child = subprocess.Popen([sys.executable, '-c', 'open(0).read()'], stdin=subprocess.PIPE)\n    ready()\n" +
		"    os.waitpid(child.pid, 0)\n",
	"def block():\n    f, g = open(sys.argv[0]), open(sys.argv[0])\n    fcntl.flock(f, fcntl.LOCK_EX)\n    ready()\n" +
		"    fcntl.flock(g, fcntl.LOCK_EX)\n",
	"def block():\n    s = socket.create_server(('127.0.0.1', 0))\n    ready()\n    s.accept()\n",
}

// randomProgram returns a Python program that prints a line and then waits forever, below calls of many kinds. All
// versions of Python that the package reads can run it.
func randomProgram(random *rand.Rand) string {
	var program strings.Builder
	program.WriteString(programHead)
	program.WriteString(blocks[random.IntN(len(blocks))])
	next := "block"
	define := func(forms []string, n int) {
		program.WriteString(strings.Repeat("\n", random.IntN(4)))
		values := strings.NewReplacer("CALL", next, "#", fmt.Sprint(n), "LEVELS", fmt.Sprint(random.IntN(60)))
		_, _ = values.WriteString(&program, forms[random.IntN(len(forms))])
		next = fmt.Sprint("f", n)
	}
	depth := 1 + random.IntN(12)
	for n := range depth {
		define(calls, n)
	}
	if random.IntN(3) == 0 {
		define(outermost, depth)
	}
	program.WriteString(next + "()\n")
	return program.String()
}
