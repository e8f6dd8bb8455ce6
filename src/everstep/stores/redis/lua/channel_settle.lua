-- Puts what was staged for a checkpoint into force, or drops it. ARGV: run, checkpoint, whether it was written.
local staged = redis.call('HGET', P .. 'staged:' .. ARGV[2], ARGV[3])
if not staged then
  return 0
end
if ARGV[4] == '1' then
  local changes = cmsgpack.unpack(staged)[2]
  for key, value in pairs(changes) do
    if value == false then
      redis.call('HDEL', P .. 'channel:' .. ARGV[2], key)
    else
      redis.call('HSET', P .. 'channel:' .. ARGV[2], key, value)
    end
  end
end
redis.call('HDEL', P .. 'staged:' .. ARGV[2], ARGV[3])
return 1
