-- Returns artifacts by digest: each with its size, and how long ago it was put. ARGV: after, limit.
local now, found = tonumber(clock()), {}
local first = ARGV[2] == '' and '-' or '(' .. ARGV[2]
for _, digest in ipairs(redis.call('ZRANGEBYLEX', P .. 'blobs', first, '+', 'LIMIT', 0, ARGV[3])) do
  local touched = tonumber(redis.call('ZSCORE', P .. 'blobs:touched', digest))
  found[#found + 1] = { digest, redis.call('STRLEN', P .. 'blob:' .. digest), whole(now - touched) }
end
return found
