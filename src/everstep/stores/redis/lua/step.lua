-- The common case of a put: one record for a run that is where the writer thinks it is, and nothing else to do.
-- Returns 0, and has written nothing, in any other case. ARGV: run, sequence, checkpoint, base, epoch, record.
local row = KEYS[1] .. 'run:' .. ARGV[1]
local f = redis.call('HMGET', row, 'id', 'epoch', 'signal', 'head')
if f[1] ~= ARGV[4] or f[2] ~= ARGV[5] or f[3] or tonumber(f[4]) + 1 ~= tonumber(ARGV[2]) then
  return 0
end
redis.call('RPUSH', KEYS[1] .. 'chain:' .. ARGV[1], ARGV[6])
redis.call('HSET', row, 'head', ARGV[2], 'id', ARGV[3])
redis.call('PUBLISH', KEYS[1] .. 'changes', '')
return 1
