/* The least work that a server can do for the load of storebench: an epoll loop that reads a request, parses nothing
 * but its first byte, and writes as many bytes as the reply has. One thread, level-triggered. It prints its port and
 * ends when its standard input does. */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { events = 512, both = 30 }; /* a WAIT longer than this has a GET behind it */

static int listen_somewhere(void) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		return -1;
	printf("127.0.0.1:%d\n", ntohs(a.sin_port));
	fflush(stdout);
	return fd;
}

static void watch(int epoll, int fd) {
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

static void accept_all(int epoll, int listener) {
	int fd, one = 1;
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		watch(epoll, fd);
	}
}

/* serve replies with zeros, except for the nonce of a PING behind a VALIDATE and the length of a 16-byte value. */
static void serve(int fd) {
	static const char zeros[32], wait_get[25] = {0, 16}, get[24] = {16};
	char in[4096];
	ssize_t n = read(fd, in, sizeof in), sent = 0;
	if (n <= 0) {
		close(fd);
		return;
	}
	switch (in[0]) {
	case 0x00: sent = n >= 10 ? write(fd, in + 6, 4) : 0; break;
	case 0x01: sent = write(fd, zeros, 1); break; /* SET, and CHECK behind it */
	case 0x03: sent = write(fd, get, sizeof get); break;
	case 0x04: sent = write(fd, zeros, 8); break;
	case 0x06: sent = n > both ? write(fd, wait_get, sizeof wait_get) : write(fd, zeros, 1); break;
	}
	if (sent < 0)
		close(fd);
}

int main(void) {
	struct epoll_event e[events];
	int epoll = epoll_create1(EPOLL_CLOEXEC), listener = listen_somewhere();
	if (epoll < 0 || listener < 0) {
		perror("floor");
		return 1;
	}
	watch(epoll, listener);
	watch(epoll, STDIN_FILENO);
	for (;;) {
		int n = epoll_wait(epoll, e, events, -1);
		for (int i = 0; i < n; i++) {
			if (e[i].data.fd == STDIN_FILENO)
				return 0;
			if (e[i].data.fd == listener)
				accept_all(epoll, listener);
			else
				serve(e[i].data.fd);
		}
	}
}
