-- Puts a notice into the indexes that follow from how it stands.
local function place_notice(number)
  local f = redis.call('HMGET', P .. 'notice:' .. number, 'due_at', 'sent_at')
  local state = f[1] and 'pending' or f[2] and 'sent' or 'dead'
  for _, other in ipairs({ 'pending', 'sent', 'dead' }) do
    if other == state then
      redis.call('ZADD', P .. 'notices:' .. state, number, number)
    else
      redis.call('ZREM', P .. 'notices:' .. other, number)
    end
  end
  if f[1] then
    redis.call('ZADD', P .. 'notices:due', f[1], number)
  else
    redis.call('ZREM', P .. 'notices:due', number)
  end
end
