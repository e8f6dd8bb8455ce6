-- Returns what decides whether a run may be trimmed, and the records that would go. ARGV: run, before.
local f = redis.call('HMGET', row_of(ARGV[2]), 'head', 'forked', 'trimmed', 'pinned')
if not f[1] then
  return false
end
local begins, before = tonumber(f[2] or 0) + 1, tonumber(ARGV[3])
local since = math.max(tonumber(f[3] or 0), begins)
local pin = redis.call('ZRANGE', P .. 'pins:' .. ARGV[2], 0, 0, 'WITHSCORES')[2] or ''
local is_keyframe = redis.call('ZSCORE', P .. 'keyframes:' .. ARGV[2], ARGV[3]) and 1 or 0
local records = {}
if is_keyframe == 1 and before > since then
  records = redis.call('LRANGE', P .. 'chain:' .. ARGV[2], since - begins, before - 1 - begins)
end
return { is_keyframe, pin, since, records, f[4] }
