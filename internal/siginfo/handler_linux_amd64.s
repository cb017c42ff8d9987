#include "textflag.h"

// handler notes where a signal comes from.
//
// The kernel calls it with the signal in DI, the siginfo in SI and the context in DX. In the siginfo, si_code is an int
// at offset 8, and si_pid and si_uid are two at offset 16. handler goes on with the handler of the Go runtime, on the
// same stack.
TEXT handler<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL DI, R8
	MOVL 8(SI), AX
	CMPL AX, $0x80 // SI_KERNEL
	JNE  sent
	LEAQ ·kernel(SB), R9
	JMP  count

sent:
	LEAQ ·codes(SB), R9
	MOVL AX, (R9)(R8*4)
	MOVQ 16(SI), AX
	LEAQ ·senders(SB), R9
	MOVQ AX, (R9)(R8*8)
	LEAQ ·sent(SB), R9

count:
	LOCK
	INCL (R9)(R8*4)
	MOVQ ·runtimeHandler(SB), AX
	JMP  AX

// func handlerAddr() uintptr
TEXT ·handlerAddr(SB), NOSPLIT, $0-8
	LEAQ handler<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET
