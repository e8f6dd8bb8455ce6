-- The common case of a put: one record for a run that is where the writer thinks it is, and nothing else to do.
-- Returns 0, and has written nothing, in any other case. ARGV: client, run, sequence, checkpoint, base, epoch, record.
local row = KEYS[1] .. 'run:' .. ARGV[2]
local f = redis.call('HMGET', row, 'id', 'epoch', 'signal', 'head')
if f[1] ~= ARGV[5] or f[2] ~= ARGV[6] or f[3] or tonumber(f[4]) + 1 ~= tonumber(ARGV[3]) then
  return 0
end
redis.call('RPUSH', KEYS[1] .. 'chain:' .. ARGV[2], ARGV[7])
redis.call('HSET', row, 'head', ARGV[3], 'id', ARGV[4])
redis.call('PUBLISH', KEYS[1] .. 'changes', ARGV[1])
return 1
