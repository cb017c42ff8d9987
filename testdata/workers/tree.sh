#!/bin/sh
# A worker with a family: children in its session, in a session of their own, and
# daemons whose parents have left. It prints its pid when all are there.
sleep 1000 &
setsid sleep 1000 &
(setsid sh -c 'sleep 1000 & sleep 1000 &' &)
(sleep 1000 &)
echo "ready $$"
wait
