#!/bin/sh
# A worker with a process tree: a child in its session, a child in another session, and daemons whose parents have
# exited. It prints its pid once all of them run.
sleep 1000 &
setsid sleep 1000 &
(setsid sh -c 'sleep 1000 & sleep 1000 &' &)
(sleep 1000 &)
echo "ready $$"
wait
